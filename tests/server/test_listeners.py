"""Gradio's listeners of the page."""

from collections import defaultdict

import gradio as gr

from vitviz.server.page.build import build_page


def test_every_change_of_the_session_cancels_running_averages(service):
    """A running average would otherwise replace the figure of the new choice."""
    demo = build_page(service)
    (session,) = [listener._id for listener in demo.blocks.values() if isinstance(listener, gr.State)]
    listeners, cancelled = demo.config["dependencies"], defaultdict(set)
    for listener in listeners:
        for target in map(tuple, listener["targets"]):
            cancelled[target] |= set(listener["cancels"])
    averages = set().union(*cancelled.values())
    assert len(averages) == 2  # the predictions of the images and the survey
    changing = {
        (target, event): listener["api_name"]
        for listener in listeners
        if session in listener["outputs"] and listener["id"] not in averages
        for target, event in listener["targets"]
        if event != "load"
    }
    assert len(changing) > 10
    for target, name in changing.items():
        assert cancelled[target] == averages, name
