"""The recipe of vitviz-tiny: it trains, resumes exactly, and its forward pass on patches is timm's own."""

import csv
import importlib
import sys
from dataclasses import asdict, make_dataclass
from pathlib import Path

import pytest
import timm
import torch
from safetensors.torch import load_file

RECIPE = Path(__file__).parents[2] / "weights" / "vitviz-tiny"
MODULES = ("settings", "data", "teacher", "lesson", "film", "train", "export")


@pytest.fixture
def recipe(monkeypatch):
    """The recipe's modules; forgotten afterwards, their names are too plain to stay.

    What is trained here has two layers and pictures of 32 px; what is only asked has the recipe's own.
    """
    monkeypatch.syspath_prepend(str(RECIPE))
    threads = torch.get_num_threads()
    settings = importlib.import_module("settings")
    monkeypatch.setattr(settings, "OWN", (settings.FIRST, settings.SECOND), raising=False)
    sizes = [("image", int, 32), ("depth", int, 2)]
    small = make_dataclass("Small", sizes, bases=(settings.Settings,), frozen=True)
    later = small(**asdict(settings.SECOND) | {name: size for name, _, size in sizes})
    for name, one in (("Settings", small), ("FIRST", small()), ("SECOND", later)):
        monkeypatch.setattr(settings, name, one)
    yield importlib.import_module("train")
    torch.set_num_threads(threads)
    for name in MODULES:
        sys.modules.pop(name, None)


def line(pictures: Path, work: Path, *more: str) -> list[str]:
    return ["--data", str(pictures), "--work", str(work), "--steps", "10", "--batch", "10", *more]


def film_of(work: Path) -> list[dict]:
    """What is logged of the snapshots, but the time they took."""
    with (work / "film.csv").open() as file:
        return [
            {key: value for key, value in row.items() if key != "seconds"} for row in csv.DictReader(file)
        ]


def exported(pictures: Path, work: Path, to: Path, monkeypatch) -> Path:
    monkeypatch.setattr(
        sys, "argv", ["export", "--data", str(pictures), "--work", str(work), "--to", str(to)]
    )
    importlib.import_module("export").main()
    return to


@pytest.mark.skipif(torch.cuda.is_available(), reason="exact to the bit on a CPU only")
@pytest.mark.sweep
def test_an_interrupted_run_gives_the_same_weights_to_the_bit(recipe, pictures, tmp_path):
    whole = recipe.main(line(pictures, tmp_path / "whole"))
    recipe.main(line(pictures, tmp_path / "parts", "--stop-at", "4"))
    torch.manual_seed(99)  # what happens between the two must not matter
    resumed = recipe.main(line(pictures, tmp_path / "parts"))

    assert whole.done == resumed.done == 10
    for name, weight in whole.model.state_dict().items():
        assert torch.equal(weight, resumed.model.state_dict()[name]), name
        assert torch.equal(whole.average[name], resumed.average[name]), name
    assert film_of(tmp_path / "whole") == film_of(tmp_path / "parts")
    names = sorted(file.stem for file in (tmp_path / "parts" / "snapshots").iterdir())
    assert names == ["step-00000", "step-00003", "step-00010-average"]


def label_loss(training) -> float:
    batch = training.lesson.batch(torch.arange(100), 0.0)
    return training.lesson.losses(training.model, training.bridge, batch)["label"].item()


@pytest.mark.long
def test_the_loss_falls(recipe, pictures, tmp_path):
    training = recipe.main(line(pictures, tmp_path, "--stop-at", "0"))
    training.args.stop_at = 10
    first = label_loss(training)
    training.run()
    last = label_loss(training)
    assert last < first - 0.2


def first():
    """The settings that the recipe itself has."""
    return importlib.import_module("settings").OWN[0]


def test_all_patches_of_an_unmoved_view_give_timms_own_logits(recipe):
    lesson, data = importlib.import_module("lesson"), importlib.import_module("data")
    torch.manual_seed(0)
    model = lesson.new_model(first()).eval()
    picture = torch.randn(2, 3, 112, 112)
    unmoved = torch.tensor([[1.0, 0, 0], [0, 1, 0]]).expand(2, -1, -1)
    patches = data.sampled_patches(picture, unmoved, data.pixel_centres(112, 8, picture.device), None)
    tokens = lesson.embedded(model, patches, None)
    logits = model.head(model.norm(model.blocks(tokens))[:, 0])
    torch.testing.assert_close(logits, model(picture), rtol=1e-4, atol=1e-4)


def test_kept_patches_carry_their_own_positions(recipe):
    lesson = importlib.import_module("lesson")
    torch.manual_seed(0)
    model = lesson.new_model(first()).eval()
    patches, kept = torch.randn(2, 196, 192), torch.randint(196, (2, 5))
    chosen = patches.gather(1, kept[..., None].expand(-1, -1, 192))
    whole, few = lesson.embedded(model, patches, None), lesson.embedded(model, chosen, kept)
    torch.testing.assert_close(few[:, 1:], whole[:, 1:].gather(1, kept[..., None].expand(-1, -1, 192)))


def test_cutmix_mixes_targets_by_the_share_of_patches(recipe):
    lesson = importlib.import_module("lesson")
    s = first()
    few = lesson.Lesson(s, torch.zeros(4, 3, 64, 64, dtype=torch.uint8), torch.arange(4), None, None)
    patches = torch.arange(4.0)[:, None, None].expand(4, 196, 192)
    target = torch.eye(4)
    for seed in range(6):  # both kinds of mixing occur
        importlib.import_module("random").seed(seed), torch.manual_seed(seed)
        mixed, mixed_target, _ = few.mixed(patches, target, None, None)
        torch.testing.assert_close(mixed.mean(dim=(1, 2)), mixed_target @ torch.arange(4.0))


def test_a_running_training_can_be_exported(recipe, pictures, tmp_path, monkeypatch):
    timm = pytest.importorskip("timm")
    recipe.main(line(pictures, tmp_path / "work", "--stop-at", "4"))
    shipped = exported(pictures, tmp_path / "work", tmp_path / "shipped", monkeypatch)
    model = timm.create_model(f"local-dir:{shipped}", pretrained=True)
    assert model.pretrained_cfg["input_size"] == (3, 32, 32)
    assert {one.dtype for one in load_file(shipped / "model.safetensors").values()} == {torch.float16}
    assert sorted(file.name for file in (shipped / "snapshots").iterdir()) == [
        "step-00000.safetensors",
        "step-00003.safetensors",
    ]


@pytest.mark.skipif(torch.cuda.is_available(), reason="exact to the bit on a CPU only")
@pytest.mark.sweep
def test_a_second_part_starts_from_the_first_ones_average_and_resumes_exactly(
    recipe, pictures, tmp_path, monkeypatch
):
    first = recipe.main(line(pictures, tmp_path / "work"))
    shipped = exported(pictures, tmp_path / "work", tmp_path / "first", monkeypatch)
    later = ("--after", str(shipped))

    begun = recipe.main(line(pictures, tmp_path / "begun", *later, "--stop-at", "0"))
    for name, weight in begun.model.state_dict().items():
        torch.testing.assert_close(weight, first.average[name], rtol=1e-3, atol=1e-6)  # through float16
    assert begun.s == importlib.import_module("settings").SECOND

    whole = recipe.main(line(pictures, tmp_path / "whole", *later))
    recipe.main(line(pictures, tmp_path / "parts", *later, "--stop-at", "4"))
    resumed = recipe.main(line(pictures, tmp_path / "parts", *later))
    for name, weight in whole.average.items():
        assert torch.equal(weight, resumed.average[name]), name
    assert film_of(tmp_path / "whole") == film_of(tmp_path / "parts")

    film = film_of(exported(pictures, tmp_path / "whole", tmp_path / "both", monkeypatch))
    assert [int(row["step"]) for row in film] == [0, 3, 10, 20] and float(film[-1]["epoch"]) == 2
    names = [f"snapshots/step-{step:05d}.safetensors" for step in (0, 3, 10)]
    assert [row["file"] for row in film] == [*names, "model.safetensors"]
    assert (tmp_path / "both" / names[-1]).read_bytes() == (shipped / "model.safetensors").read_bytes()


@pytest.mark.parametrize("progress", [0.0, 0.9])
def test_only_the_taught_heads_learn_from_the_teacher(recipe, progress):
    lesson, s = importlib.import_module("lesson"), importlib.import_module("settings").OWN[1]
    few = lesson.Lesson(s, torch.zeros(4, 3, 64, 64, dtype=torch.uint8), torch.arange(4), None, None)
    torch.manual_seed(0)
    few.teacher, model = (
        timm.create_model("deit_tiny_patch16_224", img_size=112, patch_size=8, depth=12),
        lesson.new_model(s),
    )
    few.attention_loss(model, torch.randn(2, 196, 192), torch.randn(2, 196, 192), progress).backward()
    taught = [heads for start, heads in s.taught if progress >= start][-1]
    last = max(layer for layer, *_ in taught)
    queries = model.blocks[last].attn.qkv.weight.grad[
        :192
    ]  # the earlier layers have gradients through this one, too
    learning = [head for head in range(3) if queries[64 * head : 64 * head + 64].abs().max() > 0]
    assert learning == [head for layer, head, *_ in taught if layer == last]
    assert ((0, 1, 11, 2) in taught) == (progress > 0.8)
