"""Ablations as text, as in links."""

import itertools
import random

import pytest

from vitviz.errors import VitvizError
from vitviz.traces.runs import HEADS_AS, LARGEST, PATCHES_AS, Ablation


@pytest.mark.parametrize(
    "text", ["at=1.3 other=cat", "heads=5", "layers=2", "patches=", "mlps=1 mlps=2", "mlps=²"]
)
def test_invalid_ablation_text_raises(text):
    with pytest.raises(VitvizError, match="expected"):
        Ablation.parse(text)
    assert Ablation.parse("at=1 other=cat") == Ablation(at=0, other="cat")


def random_fields(rng: random.Random) -> dict:
    """Return fields of an Ablation in any order, with repetitions and with fields that have no effect."""
    given = {
        "heads": [(rng.randrange(3), rng.choice([0, 1, LARGEST - 1])) for _ in range(rng.randrange(4))],
        "mlps": [rng.randrange(3) for _ in range(rng.randrange(3))],
        "patches": [rng.randrange(4) for _ in range(rng.randrange(4))],
        "heads_as": rng.choice(HEADS_AS),
        "patches_as": rng.choice(PATCHES_AS),
        "other": rng.choice([None, "", "coffee", "a cat", "50 %", "a=b", "猫 咪", "\n"]),
        "at": rng.choice([None, 0, 5]),
    }
    return {name: given[name] for name in rng.sample(sorted(given), len(given))}


def test_parse_inverts_text_for_every_value():
    rng, seen = random.Random(0), 0
    for _ in range(2_000):
        try:
            without = Ablation(**random_fields(rng))
        except VitvizError as refused:
            assert "other image is missing" in str(refused)
            continue
        seen += 1
        assert Ablation.parse(without.text()) == without
        assert bool(without) == bool(without.text())
    assert seen > 1_000


def test_equal_ablations_have_one_canonical_text():
    equal = (
        ("heads=1.1_8.2", "heads=8.2_1.1", "heads=01.1_8.02_1.1", "heads=1.1_8.2 patches_as=blur other=cat"),
        ("patches=3.17 patches_as=mean", "patches_as=mean patches=17.3.3", "patches=17.3  patches_as=mean"),
        ("mlps=3 heads_as=other other=cat", "other=cat heads_as=other mlps=3.3"),
        ("at=2 other=a%20cat", "other=a%20cat at=2 heads_as=zero"),
        ("", "heads_as=zero patches_as=black other=cat", " "),
    )
    for canonical, *others in equal:
        assert Ablation.parse(canonical).text() == canonical
        for text in others:
            found = Ablation.parse(text)
            assert (found, found.text(), repr(found)) == (
                Ablation.parse(canonical), canonical, repr(Ablation.parse(canonical))
            ), text  # fmt: skip
    for one, another in itertools.combinations([canonical for canonical, *_ in equal], 2):
        assert Ablation.parse(one) != Ablation.parse(another)


def test_ablation_that_text_cannot_express_raises():
    for wrong in ({"heads": [(LARGEST, 0)]}, {"at": 0, "other": "\ud83d"}, {"mlps": [LARGEST]}):
        with pytest.raises(VitvizError, match=r"expected|half a character"):
            Ablation(**wrong)
