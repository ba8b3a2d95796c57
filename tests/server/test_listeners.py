"""The page's own listeners, as Gradio knows them."""

from collections import defaultdict

import gradio as gr

from vitviz.server.page.build import build_page


def test_whatever_changes_what_is_looked_at_ends_an_average_that_is_under_way(service):
    """Its next answer would bring the old figure back, beside the new choice."""
    demo = build_page(service)
    (session,) = [one._id for one in demo.blocks.values() if isinstance(one, gr.State)]
    listeners, ended = demo.config["dependencies"], defaultdict(set)
    for one in listeners:
        for target in map(tuple, one["targets"]):
            ended[target] |= set(one["cancels"])
    averages = set().union(*ended.values())
    assert len(averages) == 2  # what a set's pictures are taken for, and its survey
    changing = {
        (target, event): one["api_name"]
        for one in listeners
        if session in one["outputs"] and one["id"] not in averages
        for target, event in one["targets"]
        if event != "load"
    }
    assert len(changing) > 10
    for target, name in changing.items():
        assert ended[target] == averages, name
