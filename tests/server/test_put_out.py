"""What the service keeps, and what becomes of what it has put out."""

import pytest

from tests import loops
from vitviz.errors import ImageError
from vitviz.server.page.components import Canvas, Page, PageComponent
from vitviz.server.security import request_context
from vitviz.server.security.middleware import PageMessages
from vitviz.server.security.scheduler import as_one_request
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings


def test_what_the_trace_alone_answers_never_brings_a_checkpoint_back(monkeypatch):
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
    assert service.item(key, "rollout", "map", {}).size, (
        "what has been drawn needs neither trace nor checkpoint"
    )


def test_a_picture_that_was_put_out_is_asked_for_again():
    small = AnalysisService(ServiceSettings(device="cpu", trace_cache=1, picture_cache=1))
    first = small.look(small.pictures.sample("chelsea"), "vitviz-tiny")
    small.look(small.pictures.sample("coffee"), "vitviz-tiny")
    with pytest.raises(ImageError, match="Upload it again"):
        small.subject(first)


def test_keys_differ_between_servers_and_cannot_be_computed_from_the_picture(service):
    assert AnalysisService(ServiceSettings()).pictures.sample("chelsea") != service.pictures.sample("chelsea")


def test_a_checkpoint_is_loaded_once(service):
    assert service.checkpoints.inspector("vitviz-tiny") is service.checkpoints.inspector("vitviz-tiny")


def test_one_answer_looks_once_whether_a_checkpoint_has_been_replaced(service, monkeypatch):
    looked = []
    monkeypatch.setattr(
        "vitviz.engine.files_unchanged", lambda checkpoint: looked.append(checkpoint.name) or True
    )
    for count in (1, 2):
        with as_one_request():
            key = service.runs.known(service.pictures.sample("coffee"), "vitviz-tiny", (64, 64))
            assert [service.subject(key).inspector, service.checkpoints.moments("vitviz-tiny")]
        assert looked == ["vitviz-tiny"] * count
    service.checkpoints.inspector("vitviz-tiny"), service.checkpoints.inspector("vitviz-tiny")
    assert len(looked) == 4, "outside of an answer everybody looks"


def test_an_answer_that_somebody_waits_for_is_not_put_out_by_new_pages():
    """Two hundred new pages of one visitor cost another his answer: Gradio forgets the oldest page first."""
    told = PageMessages(2)
    with request_context.register_stream("waits"):
        told["waits"], told["left"] = "his", "nobody's"
        for number in range(3):
            told[f"new {number}"] = "theirs"
        assert list(told) == ["waits", "new 2"]
    told["last"] = "one more"
    assert list(told) == ["new 2", "last"]


def test_an_answer_is_what_gradio_makes_of_it_and_no_component_is_built_for_what_stays(monkeypatch):
    import gradio as gr
    from gradio.state_holder import SessionState

    def told(kind: type[gr.Blocks], built: list) -> list:
        with kind() as demo:
            session, part, canvas, size = (
                gr.State({}), PageComponent("notice"), Canvas("patches"), gr.Dropdown(["a"])
            )  # fmt: skip
            outputs = [session, part, canvas, size]
            given = [{"a": 1}, {"text": "said"}, gr.skip(), gr.update(choices=["b"], value="b")]
            gr.Button().click(lambda: given, None, outputs)
            gr.Button().click(lambda: gr.skip(), None, part)
        for one in (PageComponent, Canvas):
            made = one.__init__
            monkeypatch.setattr(one, "__init__", lambda *a, made=made, **b: built.append(a) or made(*a, **b))
        state, (many, single) = SessionState(demo), demo.fns.values()
        answers = [
            loops.run(demo.postprocess_data(fn, one, state))
            for fn, one in ((many, given), (single, gr.skip()), (many, [gr.skip()] * 4))
        ]
        monkeypatch.undo()
        assert state[session._id] == {"a": 1}
        for one in (one for answer in answers for one in answer if one):
            one.pop("props", None)  # Gradio's own make a property of what says that nothing changes
        return answers

    built, ours = [], []
    assert told(Page, ours) == told(gr.Blocks, built)
    assert len(built) > len(ours) == 1, "Gradio itself builds one for each, ours only of a single part"
