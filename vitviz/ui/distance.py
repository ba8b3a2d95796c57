"""The attention-distance tab: one picture at once, or a set of them with progress."""

from __future__ import annotations

import gradio as gr

from vitviz.errors import VitvizError
from vitviz.panels import Panel
from vitviz.ui.canvas import Part
from vitviz.ui.language import say
from vitviz.ui.studio import Studio


def distance_tab(panel: Panel, studio: Studio, session: gr.State):
    """Builds the tab; returns the components that follow the picture, and how they are drawn."""
    form, rows = panel.controls
    plot = gr.Plot(show_label=False, elem_id="vitviz-distance")
    with gr.Row():
        radios = [
            gr.Radio([(say(text), value) for value, text in control.options], value=control.default, label=say(control.label))
            for control in (form, rows)
        ]
    with gr.Row(elem_classes="vitviz-buttons"):
        reset = gr.Button(say("Reset"), size="sm")
        downloads = Part("downloads")
    notice = Part("notice", elem_id="vitviz-survey-notice")
    with gr.Accordion(say("Average over a set of pictures"), open=False):
        files = gr.File(label=say("Pictures"), file_count="multiple", type="filepath", elem_id="vitviz-survey-files", height=140)
        with gr.Row(elem_classes="vitviz-buttons"):
            start = gr.Button(say("Average"), variant="primary", size="sm", elem_id="vitviz-survey-start")
            stop = gr.Button(say("Stop"), size="sm", elem_id="vitviz-survey-stop")

    drawn = [*radios, plot, downloads]

    def averaged(survey, settings: dict):
        return panel.draw(panel.averaged(survey, settings), settings, subtitle=f"mean of {survey.images} pictures")

    def draw(state: dict) -> list:
        """Settings, chart and downloads; of the average while there is one, else of the picture."""
        settings = panel.settings(state.get("distance", {}))
        survey = studio.survey(state.get("survey"))
        key = state["key"] if survey is None else state["survey"]
        figure = panel.chart(studio.subject(key), settings) if survey is None else averaged(survey, settings)
        return [*settings.values(), figure, {"key": key, "survey": survey is not None, **settings}]

    def redraw(state: dict, form: str, rows: str) -> list:
        state = {**state, "distance": {"form": form, "rows": rows}}
        return [state, *draw(state)[len(radios) :]] if state.get("key") else [gr.skip()] * 3

    def reset_all(state: dict) -> list:
        state = {**state, "survey": None, "distance": {}}
        return [state, *draw(state)] if state.get("key") else [gr.skip()] * (1 + len(drawn))

    def survey(state: dict, form: str, rows: str, paths: list[str] | None, progress=gr.Progress()):
        if not paths or not state.get("key"):
            yield gr.skip(), gr.skip(), gr.skip(), {"text": "Choose one or more pictures first; the paper averages over 128."}
            return
        try:
            for key, measured in studio.surveying(state["checkpoint"], paths):
                progress((measured.images, len(paths)), unit="pictures")
                new = {**state, "survey": key, "distance": {"form": form, "rows": rows}}
                yield new, *draw(new)[len(radios) :], {"text": " ".join(measured.skipped)}
        except VitvizError as error:
            yield gr.skip(), gr.skip(), gr.skip(), {"text": str(error)}

    hidden = {"api_visibility": "private", "show_progress": "hidden"}
    for radio in radios:
        radio.input(redraw, [session, *radios], [session, plot, downloads], **hidden)
    reset.click(reset_all, session, [session, *drawn], **hidden)
    running = start.click(
        survey, [session, *radios, files], [session, plot, downloads, notice], api_visibility="private", show_progress_on=plot
    )
    stop.click(None, None, None, cancels=running)
    return drawn, draw
