"""Which checkpoints can be picked on the page, and what is said of them."""

import pytest

from vitviz.errors import CheckpointError
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings


@pytest.mark.parametrize(
    "name", ["../weights/vitviz-tiny", "/etc", "no-such-model", "weights/vitviz-tiny/model.safetensors", ""]
)
def test_only_listed_checkpoints_can_be_named_from_the_page(service, name):
    with pytest.raises(CheckpointError):
        service.checkpoints.inspector(name)


def test_a_public_space_offers_only_what_it_is_told_to():
    closed = AnalysisService(ServiceSettings(device="cpu", allowed=("vitviz-tiny",)))
    assert [one.name for one in closed.checkpoints.selectable()] == ["vitviz-tiny"]
    with pytest.raises(CheckpointError, match="offers only vitviz-tiny"):
        closed.checkpoints.inspector("vit_tiny_patch16_224.augreg_in21k")
    assert closed.checkpoints.inspector("vitviz-tiny@0").checkpoint.name == "vitviz-tiny@0", (
        "the film of what is allowed is allowed"
    )
    assert closed.checkpoints.film("vitviz-tiny@0")["frames"][-1]["name"] == "vitviz-tiny"
    with pytest.raises(CheckpointError, match="no snapshot of step 7"):
        closed.checkpoints.inspector("vitviz-tiny@7")


def test_the_picker_says_of_each_checkpoint_what_one_has_to_know(service):
    lines = {name: line for line, name in service.checkpoints.choices()}
    assert lines["vitviz-tiny"] == "vitviz-tiny · 3.67 M"
    assert (
        lines["vit_base_patch16_224.augreg_in21k"]
        == "vit_base_patch16_224.augreg_in21k · ≈ 86.6 M parameters, 346 MB · ImageNet-21k · apache-2.0 · to"
        " be downloaded"
    )
    assert len(lines) > 400


def test_checkpoints_to_be_downloaded_are_listed_by_size(service):
    offered = {one.name: one for one in service.checkpoints.selectable()}
    listed = [offered[name] for _, name in service.checkpoints.choices()]
    hub = [one for one in listed if one.source == "hub"]
    assert listed[-len(hub) :] == hub, "checkpoints on this server come first"
    missing = [one.parameters for one in hub if not one.on_disk and one.parameters]
    assert len(missing) > 400 and missing == sorted(missing)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("positions-1d-0", "vitviz-positions-1d-0"),
        ("POSITIONS-2D-1", "vitviz-positions-2d-1"),
        ("vitviz-tiny", "vitviz-tiny"),
        ("positions", "positions"),  # six names contain it
        ("vit_base_patch16_224", "vit_base_patch16_224"),
        ("", ""),
    ],
)
def test_a_part_of_one_name_stands_for_it(service, text, name):
    assert service.checkpoints.named(text) == name


def test_the_pairs_that_teach_exist(service):
    from vitviz.server.page.page_renderer import PAIRS

    names = {name for _, pair in PAIRS for name in pair.split("|")}
    assert {name for name in names if "@" not in name} <= {
        one.name for one in service.checkpoints.selectable()
    }
    assert all(service.checkpoints.inspector(name) for name in names if "@" in name)
