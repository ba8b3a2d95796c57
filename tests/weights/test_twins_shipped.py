"""The twins that ship: that they differ as their names say, and are as good as film.csv and the card say."""

import csv
from pathlib import Path

import pytest
import timm
import torch
from einops import rearrange

import vitviz
from tests.shared import shared_file

HOME = Path(__file__).parents[2] / "weights"
CARD = HOME / "vitviz-positions" / "README.md"
TWINS = sorted(path.name for path in HOME.glob("vitviz-positions-*-*"))
each = pytest.mark.parametrize("name", TWINS)


def kind_of(name: str) -> str:
    return name.split("-")[2]


def model_of(name: str) -> torch.nn.Module:
    """By timm alone."""
    return timm.create_model(f"local-dir:{HOME / name}", pretrained=True).eval()


def film_of(name: str) -> list[dict]:
    with (HOME / name / "film.csv").open(newline="") as file:
        return list(csv.DictReader(file))


@each
def test_the_film_is_whole_and_small_enough(name):
    rows = film_of(name)
    files = sorted(path.relative_to(HOME / name).as_posix() for path in (HOME / name).rglob("*.safetensors"))
    assert sorted(row["file"] for row in rows) == files
    assert all((HOME / name / file).stat().st_size < 10e6 for file in files)
    assert rows[-1]["file"] == "model.safetensors" and rows[-1]["weights"] == "average"
    assert int(rows[-1]["step"]) == 10_000
    snapshots = [0, 1000, 3000] if name.endswith("-0") else []
    assert [int(row["step"]) for row in rows[:-1]] == snapshots
    assert [frame.step for frame in vitviz.training_snapshots(name)] == (snapshots and [*snapshots, 10_000])
    top1 = [float(row["val_top1"]) for row in rows]
    assert top1 == sorted(top1) and top1[-1] > 0.2
    assert f"{top1[-1]:.1%}".replace("%", " %") in vitviz.load(name).checkpoint.note


@each
def test_positions_are_of_the_kind_that_the_name_says(name):
    inspector = vitviz.load(name, device="cpu")
    table = inspector.position_table()
    if kind_of(name) == "none":
        assert table is None and inspector.position_kind() == "none"
        return
    across, down = rearrange(table, "(row col) (half width) -> half row col width", row=8, half=2)
    factored = torch.equal(across, across[:1].expand_as(across)) and torch.equal(
        down, down[:, :1].expand_as(down)
    )
    assert factored == (kind_of(name) == "2d")


@each
def test_permuting_patches_moves_the_answer_unless_there_are_no_positions(name):
    """In double precision, to which the page's single one adds no more than rounding."""
    noise = torch.Generator().manual_seed(0)
    coarse = torch.randn(4, 3, 8, 8, generator=noise, dtype=torch.float64)
    pictures = torch.nn.functional.interpolate(coarse, 64, mode="bicubic")
    patches = rearrange(pictures, "image rgb (r p) (c q) -> image (r c) rgb p q", r=8, c=8)
    moved = patches[:, torch.randperm(64, generator=noise)]
    moved = rearrange(moved, "image (r c) rgb p q -> image rgb (r p) (c q)", r=8)
    model = model_of(name).double()
    with torch.no_grad():
        difference = (model(pictures) - model(moved)).abs().max()
        single = (model.float()(pictures.float()) - model(moved.float())).abs().max()
    if kind_of(name) == "none":
        assert difference < 1e-10 and single < 1e-5
    else:
        assert difference > 0.1 and single > 0.1


@pytest.fixture(scope="module")
def validation(twins_recipe):
    """Every tenth validation picture, normalised, and the labels."""
    data = twins_recipe("twins") and twins_recipe("data")  # the first says where the second is
    pictures, labels = data.load_split(shared_file("data/tiny-imagenet"), "val")
    return data.normalised(pictures[::10]), labels[::10]


@pytest.mark.sweep  # 1,000 pictures
@each
def test_it_is_as_good_as_its_film_says(name, validation):
    pictures, labels = validation
    model = model_of(name)
    with torch.inference_mode():
        answers = torch.cat([model(part) for part in pictures.split(100)])
    found = (answers.argmax(-1) == labels).double().mean().item()
    assert (
        abs(found - float(film_of(name)[-1]["val_top1"])) < 0.045
    )  # three standard errors of 1,000 pictures


@pytest.mark.skipif(not TWINS, reason="no twin is trained yet")
def test_the_card_has_the_accuracy_of_all_that_ship(twins_recipe):
    twins = twins_recipe("evaluate_twins")
    card = CARD.read_text(encoding="utf-8")
    for line in "\n".join(twins.accuracy_rows(twins.folders())).splitlines():
        assert line in card, line
