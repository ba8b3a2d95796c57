"""The lines of the checkpoint picker."""

from vitviz.engine.checkpoint import Checkpoint
from vitviz.server.services.checkpoints import picker_line


def test_picker_line_omits_an_unknown_size():
    """The shapes in a pickle are not read before the checkpoint is selected."""
    assert picker_line(Checkpoint("mine", None, "local", "mine.bin")) == "mine"
    hub = Checkpoint("vit_x", None, "hub", "vit_x", trained_on="ImageNet-1k", on_disk=False)
    assert picker_line(hub) == "vit_x · ImageNet-1k · to be downloaded"


def test_picker_line_marks_hub_sizes_as_approximate():
    known = Checkpoint("vit_x", None, "hub", "vit_x", parameters=86_567_656, on_disk=True)
    assert picker_line(known) == "vit_x · ≈ 86.6 M parameters, 346 MB · on disk"
    assert picker_line(Checkpoint("mine", None, "local", "/mine", parameters=3_672_968)) == "mine · 3.67 M"
