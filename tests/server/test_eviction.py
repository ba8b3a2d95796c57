"""Evicted traces, images and messages, and cached checkpoints."""

import pytest

from tests import loops
from vitviz.errors import ImageError
from vitviz.server.page.components import Canvas, Page, PageComponent
from vitviz.server.security import request_context
from vitviz.server.security.middleware import PageMessages
from vitviz.server.security.scheduler import as_one_request
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings


def test_trace_only_requests_do_not_reload_the_checkpoint(monkeypatch):
    service = AnalysisService(ServiceSettings(device="cpu"))
    key = service.look(service.pictures.sample("coffee"), "vitviz-tiny")
    service.checkpoints._inspectors._entries.clear()

    def load(*given, **named):
        raise AssertionError("the checkpoint was loaded again")

    monkeypatch.setattr("vitviz.engine.load", load)
    for slug, name in (
        ("rollout", "map"),
        ("explorer", "wall"),
        ("distance", "distance"),
        ("patches", "norms"),
    ):
        assert service.item(key, slug, name, {}).size
        assert service.numbers(key, slug, {})
    service._traces._entries.clear()
    assert service.item(key, "rollout", "map", {}).size, "a cached item needs the trace"


def test_evicted_image_requests_a_new_upload():
    small = AnalysisService(ServiceSettings(device="cpu", trace_cache=1, picture_cache=1))
    first = small.look(small.pictures.sample("chelsea"), "vitviz-tiny")
    small.look(small.pictures.sample("coffee"), "vitviz-tiny")
    with pytest.raises(ImageError, match="Upload it again"):
        small.subject(first)


def test_image_keys_differ_between_servers(service):
    assert AnalysisService(ServiceSettings()).pictures.sample("chelsea") != service.pictures.sample("chelsea")


def test_a_checkpoint_is_loaded_once(service):
    assert service.checkpoints.inspector("vitviz-tiny") is service.checkpoints.inspector("vitviz-tiny")


def test_request_checks_checkpoint_files_once(service, monkeypatch):
    file_checks = []
    monkeypatch.setattr(
        "vitviz.engine.files_unchanged", lambda checkpoint: file_checks.append(checkpoint.name) or True
    )
    for count in (1, 2):
        with as_one_request():
            key = service.runs.known(service.pictures.sample("coffee"), "vitviz-tiny", (64, 64))
            assert [service.subject(key).inspector, service.checkpoints.moments("vitviz-tiny")]
        assert file_checks == ["vitviz-tiny"] * count
    service.checkpoints.inspector("vitviz-tiny"), service.checkpoints.inspector("vitviz-tiny")
    assert len(file_checks) == 4, "calls outside a request do not check the files"


def test_pending_messages_are_not_evicted_by_new_pages():
    """Gradio itself evicts the oldest page first, even if its client still waits."""
    messages = PageMessages(2)
    with request_context.register_stream("waits"):
        messages["waits"], messages["left"] = "his", "nobody's"
        for number in range(3):
            messages[f"new {number}"] = "theirs"
        assert list(messages) == ["waits", "new 2"]
    messages["last"] = "one more"
    assert list(messages) == ["new 2", "last"]


def test_page_postprocessing_equals_gradio_without_rebuilding(monkeypatch):
    import gradio as gr
    from gradio.state_holder import SessionState

    def run_page(kind: type[gr.Blocks], built: list) -> list:
        with kind() as demo:
            session, part, canvas, size = (
                gr.State({}), PageComponent("notice"), Canvas("patches"), gr.Dropdown(["a"])
            )  # fmt: skip
            outputs = [session, part, canvas, size]
            given = [{"a": 1}, {"text": "said"}, gr.skip(), gr.update(choices=["b"], value="b")]
            gr.Button().click(lambda: given, None, outputs)
            gr.Button().click(lambda: gr.skip(), None, part)
        for one in (PageComponent, Canvas):
            original_init = one.__init__
            monkeypatch.setattr(
                one,
                "__init__",
                lambda *a, original_init=original_init, **b: built.append(a) or original_init(*a, **b),
            )
        state, (many, single) = SessionState(demo), demo.fns.values()
        answers = [
            loops.run(demo.postprocess_data(fn, one, state))
            for fn, one in ((many, given), (single, gr.skip()), (many, [gr.skip()] * 4))
        ]
        monkeypatch.undo()
        assert state[session._id] == {"a": 1}
        for one in (one for answer in answers for one in answer if one):
            one.pop("props", None)  # Gradio's components turn a skip into a property
        return answers

    built, built_by_page = [], []
    assert run_page(Page, built_by_page) == run_page(gr.Blocks, built)
    assert len(built) > len(built_by_page) == 1, "the page rebuilds unchanged components"
