"""The list of selectable checkpoints and its descriptions."""

import pytest

from vitviz.errors import CheckpointError
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings


@pytest.mark.parametrize(
    "name", ["../weights/vitviz-tiny", "/etc", "no-such-model", "weights/vitviz-tiny/model.safetensors", ""]
)
def test_unlisted_checkpoint_is_rejected(service, name):
    with pytest.raises(CheckpointError):
        service.checkpoints.inspector(name)


def test_allowed_list_limits_checkpoints_and_includes_snapshots():
    service = AnalysisService(ServiceSettings(device="cpu", allowed=("vitviz-tiny",)))
    assert [one.name for one in service.checkpoints.selectable()] == ["vitviz-tiny"]
    with pytest.raises(CheckpointError, match="offers only vitviz-tiny"):
        service.checkpoints.inspector("vit_tiny_patch16_224.augreg_in21k")
    assert service.checkpoints.inspector("vitviz-tiny@0").checkpoint.name == "vitviz-tiny@0", (
        "a snapshot of an allowed checkpoint is rejected"
    )
    assert service.checkpoints.film("vitviz-tiny@0")["frames"][-1]["name"] == "vitviz-tiny"
    with pytest.raises(CheckpointError, match="no snapshot of step 7"):
        service.checkpoints.inspector("vitviz-tiny@7")


def test_choices_describe_size_training_data_and_license(service):
    lines = {name: line for line, name in service.checkpoints.choices()}
    assert lines["vitviz-tiny"] == "vitviz-tiny · 3.67 M"
    assert (
        lines["vit_base_patch16_224.augreg_in21k"]
        == "vit_base_patch16_224.augreg_in21k · ≈ 86.6 M parameters, 346 MB · ImageNet-21k · apache-2.0 · to"
        " be downloaded"
    )
    assert len(lines) > 400


def test_checkpoints_to_be_downloaded_are_listed_by_size(service):
    offered = {entry.name: entry for entry in service.checkpoints.selectable()}
    listed = [offered[name] for _, name in service.checkpoints.choices()]
    hub = [entry for entry in listed if entry.source == "hub"]
    assert listed[-len(hub) :] == hub, "a hub checkpoint precedes a local one"
    missing = [entry.parameters for entry in hub if not entry.on_disk and entry.parameters]
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
def test_unique_part_of_a_name_selects_the_checkpoint(service, text, name):
    assert service.checkpoints.named(text) == name


def test_suggested_pairs_exist(service):
    from vitviz.server.page.page_renderer import PAIRS

    names = {name for _, pair in PAIRS for name in pair.split("|")}
    assert {name for name in names if "@" not in name} <= {
        one.name for one in service.checkpoints.selectable()
    }
    assert all(service.checkpoints.inspector(name) for name in names if "@" in name)
