"""The attention-distance tab: one picture at once, or a set of them with progress."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import gradio as gr

from vitviz.errors import VitvizError
from vitviz.panels import Panel
from vitviz.ui.canvas import Part
from vitviz.ui.language import say, translated
from vitviz.ui.studio import Studio
from vitviz.ui.widgets import Pictures


class Chart:
    """What the tab shows for a session: radios, chart and downloads always say the same."""

    def __init__(self, panel: Panel, studio: Studio):
        self._panel, self._studio = panel, studio
        self._radios = len(panel.controls)

    def draw(self, state: dict) -> list:
        """Settings, chart and downloads; of the average while there is one, else of the picture."""
        panel, survey = self._panel, self._studio.survey(state.get("survey"))
        settings = panel.settings(state.get("distance", {}))
        if survey is None:
            key, figure = state["key"], panel.chart(self._studio.subject(state["key"]), settings)
        else:
            key, said = state["survey"], f"{survey.checkpoint}, mean of {survey.images} pictures"
            figure = panel.draw(panel.averaged(survey, settings), settings, subtitle=said)
        beside = self._studio.subject(state["second_key"]) if state.get("second_key") and survey is None else None
        other = gr.update(visible=False)
        if beside is not None:
            second = panel.chart(beside, settings)
            level(figure, second)
            other = gr.update(visible=True, value=spoken(second, _language(state)))
        return [*settings.values(), spoken(figure, _language(state)), {"key": key, "survey": survey is not None, **settings}, other]

    def redraw(self, state: dict, form: str, rows: str) -> list:
        """State, everything drawn, and notice with other settings."""
        return self._attempt(state, {"distance": {"form": form, "rows": rows}})

    def reset(self, state: dict) -> list:
        """The same of the picture alone and as at first."""
        return self._attempt(state, {"survey": None, "distance": {}})

    def survey(self, state: dict, form: str, rows: str, paths: list[str] | None, progress=gr.Progress()) -> Iterator[list]:  # noqa: B008
        """The same as the average over a set of pictures grows."""
        if not paths or not state.get("key"):
            yield self._as_it_was(state, translated("Choose one or more pictures first; the paper averages over 128.", _language(state)))
            return
        try:
            for key, measured in self._studio.surveying(state["key"], paths):
                progress((measured.images, len(paths)), unit=translated("pictures", _language(state)))
                # Not settled: every other choice ends the survey, and what it had yet to say must then count for nothing.
                now = {**state, "survey": key, "distance": {"form": form, "rows": rows}}
                yield [now, *self.draw(now), {"text": " ".join(measured.skipped)}]
        except VitvizError as error:
            yield self._as_it_was(state, str(error))

    def _attempt(self, state: dict, change: dict) -> list:
        if not state.get("key"):
            return [gr.skip()] * (self._radios + 5)
        try:
            return self._studio.sessions.settled(state, lambda newest: [after := {**newest, **change}, *self.draw(after), {"text": ""}])
        except VitvizError as error:  # what is drawn may have to be computed again, with a checkpoint that is gone by now
            return self._as_it_was(state, str(error))

    def _as_it_was(self, state: dict, sentence: str) -> list:
        """The chart stays, and the radios go back to what it shows."""
        settings = self._panel.settings(state.get("distance", {}))
        return [gr.skip(), *settings.values(), gr.skip(), gr.skip(), gr.skip(), {"text": sentence}]


def level(*figures: Any) -> None:
    """One scale for charts that stand side by side: what is higher in one is higher in all."""
    highest = max(figure.layout.yaxis.range[1] for figure in figures)
    for figure in figures:
        figure.update_yaxes(range=[0, highest])


def spoken(figure: Any, language: str) -> Any:
    """The chart with its words in a language; its numbers and the checkpoint's name stay."""
    layout = figure.layout
    for place in (layout.title, layout.xaxis.title, layout.yaxis.title, *layout.annotations):
        if place.text:
            place.text = translated(place.text, language)
    for trace in figure.data:
        trace.name = translated(trace.name, language)
        if trace.hovertemplate:
            trace.hovertemplate = translated(trace.hovertemplate, language)
    return figure


def _language(state: dict) -> str:
    return state.get("language", "en")


def distance_tab(panel: Panel, studio: Studio, session: gr.State):
    """Builds the tab; returns the components that follow the picture, how they are drawn, and the event that another picture ends."""
    with gr.Row():
        plot = gr.Plot(show_label=False, elem_id="vitviz-distance")
        second = gr.Plot(show_label=False, elem_id="vitviz-second-distance", visible=False)
    with gr.Row():
        radios = [
            gr.Radio([(say(text), value) for value, text in control.options], value=control.default, label=say(control.label))
            for control in panel.controls
        ]
    with gr.Row(elem_classes="vitviz-buttons"):
        reset = gr.Button(say("Reset"), size="sm")
        downloads = Part("downloads")
    notice = Part("notice", elem_id="vitviz-survey-notice")
    with gr.Accordion(say("Average over a set of pictures"), open=False):
        files = Pictures(label=say("Pictures"), elem_id="vitviz-survey-files", height=140)
        with gr.Row(elem_classes="vitviz-buttons"):
            start = gr.Button(say("Average"), variant="primary", size="sm", elem_id="vitviz-survey-start")
            stop = gr.Button(say("Stop"), size="sm", elem_id="vitviz-survey-stop")

    chart, drawn, hidden = Chart(panel, studio), [*radios, plot, downloads, second], {"api_visibility": "private", "show_progress": "hidden"}
    shown = [session, *drawn, notice]
    running = start.click(chart.survey, [session, *radios, files], shown, api_visibility="private", show_progress_on=plot)
    # An average that went on would lay the state it began with over what has been chosen since.
    gr.on([stop.click, reset.click, *(radio.input for radio in radios)], None, cancels=running)
    for radio in radios:
        radio.input(chart.redraw, [session, *radios], shown, trigger_mode="always_last", **hidden)
    reset.click(chart.reset, session, shown, **hidden)
    return drawn, chart.draw, running
