"""The recipe of the twins: they differ in positions alone, and train in lock-step as alone or interrupted."""

import csv
import threading
import time
from pathlib import Path

import pytest
import timm
import torch
from einops import rearrange
from safetensors.torch import load_file

import vitviz
from vitviz.traces.samples import sample_image
from vitviz.views import ViewContext
from vitviz.views.positions import PositionsView

pytestmark = pytest.mark.long  # the five runs that the tests share take twelve seconds
KINDS = ("none", "1d", "2d")


def trained(twins_recipe, pictures: Path, work: Path, *more: str) -> dict:
    """Runs of six steps of ten pictures, by name."""
    line = ["--data", str(pictures), "--work", str(work), "--steps", "6", "--batch", "10", *more]
    return {twin.name: twin for twin in twins_recipe("train_twins").main(line)}


def same(one, other) -> None:
    """Two runs are the same to the bit."""
    assert one.name == other.name and one.done == other.done == 6 and one.running == other.running
    for name, weight in one.model.state_dict().items():
        assert torch.equal(weight, other.model.state_dict()[name]), name
        assert torch.equal(one.average[name], other.average[name]), name


def film_of(work: Path) -> list[dict]:
    """What is logged of the snapshots, but the time they took."""
    with (work / "film.csv").open(newline="") as file:
        return [
            {key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)
        ]


@pytest.mark.sweep
def test_a_run_in_lock_step_alone_or_interrupted_gives_the_same_weights_to_the_bit(
    twins_recipe, pictures, tmp_path
):
    together = trained(twins_recipe, pictures, tmp_path / "together", "--seeds", "0")
    alone = trained(
        twins_recipe, pictures, tmp_path / "alone", "--seeds", "0", "--one-by-one", "--threads", "1"
    )
    for name, twin in together.items():
        same(twin, alone[name])

    trained(twins_recipe, pictures, tmp_path / "parts", "--seeds", "0", "--kinds", "1d", "--stop-at", "2")
    torch.manual_seed(99)  # what happens between the two must not matter
    trained(twins_recipe, pictures, tmp_path / "parts", "--seeds", "0", "--kinds", "none", "--stop-at", "4")
    parts = trained(twins_recipe, pictures, tmp_path / "parts", "--seeds", "0")  # those behind go first
    for name, twin in together.items():
        same(twin, parts[name])
        assert film_of(tmp_path / "together" / name) == film_of(tmp_path / "parts" / name)
        assert [row["snapshot"] for row in film_of(twin.work)] == ["step-00000", "step-00006-average"]
    assert not torch.equal(together["1d-0"].average["head.weight"], together["2d-0"].average["head.weight"])


def test_two_seeds_have_other_weights_and_other_views(twins_recipe, pictures, tmp_path):
    runs = trained(twins_recipe, pictures, tmp_path, "--kinds", "1d", "--stop-at", "0")
    assert not torch.equal(runs["1d-0"].model.head.weight, runs["1d-1"].model.head.weight)
    few = twins_recipe("data").load_split(pictures, "train")
    views = twins_recipe("train_twins").Views
    first, again, other = (views(seed, *few, 10).at(0, 0.0)[0].patches for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_an_epoch_shows_every_picture_once(twins_recipe):
    labels = torch.arange(100) % 200
    views = twins_recipe("train_twins").Views(0, torch.zeros(100, 3, 64, 64, dtype=torch.uint8), labels, 10)
    seen = [torch.cat([part.target for part in views.at(step, 0.9)]).argmax(-1) for step in range(20)]
    for epoch in (seen[:10], seen[10:]):
        assert torch.cat(epoch).sort().values.tolist() == list(range(100))
    assert not torch.equal(torch.cat(seen[:10]), torch.cat(seen[10:]))


def test_twins_begin_alike_in_all_but_their_positions(twins_recipe):
    new_twin = twins_recipe("twins").new_twin
    weights = {kind: new_twin(kind, 3).state_dict() for kind in KINDS}
    shared = {name for name in weights["none"] if "pos_embed" not in name}
    for kind in KINDS:
        assert shared == {name for name in weights[kind] if "pos_embed" not in name}
        assert all(torch.equal(weights[kind][name], weights["none"][name]) for name in shared)
    learned = {
        kind: sum(p.requires_grad * p.numel() for p in new_twin(kind, 3).parameters()) for kind in KINDS
    }
    assert learned["1d"] - learned["none"] == 64 * 128 and learned["2d"] - learned["none"] == 2 * 8 * 64


def test_2d_positions_are_those_of_a_column_beside_those_of_a_line(twins_recipe):
    twin = twins_recipe("twins").new_twin("2d", 0)
    x, y = (table.detach() for table in twin.parametrizations.pos_embed.parameters())
    table = twin.pos_embed[0].detach()
    assert not table[0].any()  # the class token's
    for row, col in ((0, 0), (0, 5), (6, 0), (7, 2)):
        assert torch.equal(table[1 + 8 * row + col], torch.cat([x[col], y[row]]))


@pytest.fixture(scope="module")
def shipped(twins_recipe, pictures, tmp_path_factory) -> Path:
    """A folder with the three twins of two seeds, one of which is not finished."""
    tmp_path = tmp_path_factory.mktemp("twins")
    trained(twins_recipe, pictures, tmp_path / "work", "--seeds", "0")
    trained(twins_recipe, pictures, tmp_path / "work", "--seeds", "1", "--kinds", "none", "1d")
    trained(twins_recipe, pictures, tmp_path / "work", "--seeds", "1", "--kinds", "2d", "--stop-at", "2")
    line = ["--data", str(pictures), "--work", str(tmp_path / "work"), "--to", str(tmp_path / "shipped")]
    twins_recipe("export_twins").main(line)
    return tmp_path / "shipped"


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
def test_timms_own_model_answers_as_the_twin_that_was_trained(twins_recipe, pictures, shipped, kind):
    twins, work = twins_recipe("twins"), shipped.parent / "work"
    twin = trained(twins_recipe, pictures, work, "--kinds", kind, "--seeds", "0")[f"{kind}-0"]  # is done
    picture, model = torch.randn(2, 3, 64, 64), twins.plain_model(kind).eval()
    model.load_state_dict(twins.plain(kind, twin.average))
    twin.model.load_state_dict(twin.average)
    torch.testing.assert_close(twin.model.eval()(picture), model(picture))
    file = load_file(work / f"{kind}-0" / "snapshots" / "step-00006-average.safetensors")
    assert {value.dtype for value in file.values()} == {torch.float16}
    assert ("pos_embed" in file) == (kind != "none") and file.keys() == model.state_dict().keys()


def test_what_is_finished_is_exported_once_and_loads_like_any_checkpoint(
    twins_recipe, pictures, shipped, capsys
):
    names = [f"vitviz-positions-{run}" for run in ("1d-0", "1d-1", "2d-0", "none-0", "none-1")]
    assert [
        checkpoint.name for checkpoint in vitviz.checkpoints(shipped) if checkpoint.source == "shipped"
    ] == names
    for name in names:
        inspector, kind = vitviz.load(shipped / name), name.split("-")[2]
        assert inspector.position_kind() == ("none" if kind == "none" else "learned")
        assert "validation pictures" in inspector.checkpoint.note and name[-1] in inspector.checkpoint.note
        picture = torch.randn(1, 3, 64, 64)
        model = timm.create_model(f"local-dir:{shipped / name}", pretrained=True).eval()
        assert model(picture).shape == (1, 200) and model.pretrained_cfg["input_size"] == (3, 64, 64)
        frames = vitviz.training_snapshots(shipped / name)
        assert [frame.step for frame in frames] == ([0, 6] if name.endswith("-0") else [])
    before = {path: path.stat().st_mtime_ns for path in shipped.rglob("*")}
    line = ["--data", str(pictures), "--work", str(shipped.parent / "work"), "--to", str(shipped)]
    twins_recipe("export_twins").main(line)
    assert {path: path.stat().st_mtime_ns for path in shipped.rglob("*")} == before
    assert "vitviz-positions-2d-1 is not finished" in capsys.readouterr().out


def test_a_twin_without_positions_loads_and_says_why_there_is_no_picture(shipped):
    inspector = vitviz.load(shipped / "vitviz-positions-none-0")
    assert inspector.position_table() is None

    assert "no position information" in PositionsView().unsupported(ViewContext(inspector))
    trace = inspector.trace(sample_image("coffee"))
    moved = inspector.experiment(sample_image("coffee"), shuffle=1)
    torch.testing.assert_close(moved.logits, trace.logits, rtol=0, atol=1e-5)


def test_permuting_moves_whole_patches_and_only_the_answers_of_those_with_positions(twins_recipe, shipped):
    picture = torch.arange(2 * 3 * 64 * 64).float().reshape(2, 3, 64, 64) / 1e4
    moved = twins_recipe("evaluate_twins").permuted(picture)
    cut = "image rgb (r p) (c q) -> image (r c) (rgb p q)"
    before, after = (rearrange(x, cut, p=8, q=8) for x in (picture, moved))
    for one, other in zip(before, after, strict=True):
        assert sorted(one.tolist()) == sorted(other.tolist()) and not torch.equal(one, other)
    figures = {}
    for kind in KINDS:
        model = timm.create_model(f"local-dir:{shipped}/vitviz-positions-{kind}-0", pretrained=True).eval()
        figures[kind] = twins_recipe("evaluate_twins").permutation_figures(
            model, torch.randn(8, 3, 64, 64), torch.arange(8)
        )
    largest = {kind: found["largest difference of a logit"] for kind, found in figures.items()}
    assert largest["none"] < 1e-5 < 1e-4 < min(largest["1d"], largest["2d"])


def test_a_state_of_another_recipe_is_refused(twins_recipe, pictures, tmp_path):
    trained(twins_recipe, pictures, tmp_path, "--kinds", "1d", "--seeds", "0", "--stop-at", "1")
    with pytest.raises(ValueError, match="another batch"):
        trained(twins_recipe, pictures, tmp_path, "--kinds", "1d", "--seeds", "0", "--batch", "20")


def test_training_pauses_while_there_is_a_file_and_what_was_done_is_kept(twins_recipe, pictures, tmp_path):
    file, state = tmp_path / "pause", tmp_path / "work" / "1d-0" / "state.pt"
    file.touch()
    line = ("--kinds", "1d", "--seeds", "0", "--pause-while", str(file))
    runs: dict = {}
    training = threading.Thread(
        target=lambda: runs.update(trained(twins_recipe, pictures, tmp_path / "work", *line)), daemon=True
    )
    training.start()
    while training.is_alive() and not state.exists():
        time.sleep(0.1)
    time.sleep(0.5)
    assert training.is_alive() and torch.load(state)["done"] == 0
    file.unlink()
    training.join(60)
    assert runs["1d-0"].done == 6
