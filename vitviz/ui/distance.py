"""The attention-distance tab: one picture at once, or a set of them with progress."""

from __future__ import annotations

import gradio as gr

from vitviz.errors import VitvizError
from vitviz.panels import Panel
from vitviz.ui.canvas import Part
from vitviz.ui.language import say
from vitviz.ui.studio import Studio

FIGURE = "() => document.querySelector('#vitviz-distance .modebar-btn[data-title*=\"ownload\"]')?.click()"
NUMBERS = """(state, form, rows) => {
  const key = state.survey || state.key;
  if (key) window.location.assign(new URL(`gradio_api/vitviz/${key}/distance/numbers.npz?form=${form}&rows=${rows}`, document.baseURI));
}"""


def distance_tab(panel: Panel, studio: Studio, session: gr.State):
    """Builds the tab; returns the components that follow the picture, and how they are drawn."""
    form, rows = panel.controls
    plot = gr.Plot(show_label=False, elem_id="vitviz-distance")
    with gr.Row():
        radios = [gr.Radio([(say(text), value) for value, text in control.options], value=control.default, label=say(control.label)) for control in (form, rows)]
    with gr.Row(elem_classes="vitviz-buttons"):
        reset = gr.Button(say("Reset"), size="sm")
        figure = gr.Button(say("Figure (PNG)"), size="sm")
        numbers = gr.Button(say("Numbers (.npz)"), size="sm")
    notice = Part("notice", elem_id="vitviz-survey-notice")
    with gr.Accordion(say("Average over a set of pictures"), open=False):
        files = gr.File(label=say("Pictures"), file_count="multiple", type="filepath", elem_id="vitviz-survey-files", height=140)
        with gr.Row(elem_classes="vitviz-buttons"):
            start = gr.Button(say("Average"), variant="primary", size="sm", elem_id="vitviz-survey-start")
            stop = gr.Button(say("Stop"), size="sm", elem_id="vitviz-survey-stop")

    def averaged(survey, settings: dict):
        return panel.draw(panel.averaged(survey, settings), settings, subtitle=f"mean of {survey.images} pictures")

    def draw(state: dict, form: str = "depth", rows: str = "plain") -> list:
        settings = panel.settings({"form": form, "rows": rows})
        survey = studio.survey(state.get("survey"))
        if survey is not None:
            return [averaged(survey, settings)]
        return [panel.chart(studio.subject(state["key"]), settings)]

    def redraw(state: dict, form: str, rows: str):
        return draw(state, form, rows)[0] if state.get("key") else gr.skip()

    def survey(state: dict, form: str, rows: str, paths: list[str] | None, progress=gr.Progress()):
        if not paths or not state.get("key"):
            yield gr.skip(), gr.skip(), {"text": "Choose one or more pictures first; the paper averages over 128."}
            return
        settings = panel.settings({"form": form, "rows": rows})
        try:
            for key, measured in studio.surveying(state["checkpoint"], paths):
                progress((measured.images, len(paths)), unit="pictures")
                yield {**state, "survey": key}, averaged(measured, settings), {"text": " ".join(measured.skipped)}
        except VitvizError as error:
            yield gr.skip(), gr.skip(), {"text": str(error)}

    hidden = {"api_visibility": "private", "show_progress": "hidden"}
    for radio in radios:
        radio.input(redraw, [session, *radios], plot, **hidden)
    reset.click(lambda state: ({**state, "survey": None}, form.default, rows.default, *draw({**state, "survey": None})), session, [session, *radios, plot], **hidden)
    figure.click(None, None, None, js=FIGURE)
    numbers.click(None, [session, *radios], None, js=NUMBERS)
    running = start.click(survey, [session, *radios, files], [session, plot, notice], api_visibility="private", show_progress_on=plot)
    stop.click(None, None, None, cancels=running)
    return [plot], lambda state: draw({**state, "survey": None})
