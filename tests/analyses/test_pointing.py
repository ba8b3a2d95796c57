"""Pointing game and energy in the box, against pixel counts."""

import itertools

import pytest
import torch

from vitviz.analyses.faithfulness.pointing import box_coverage, energy_in_boxes, pointing_hit
from vitviz.traces.grid import Grid

GRID = Grid(3, 4, (8, 8), ("class",))


def coverage_by_pixels(boxes):
    """Return the share of each patch's pixels inside any box, by plain loops."""
    shares = [[0.0] * 4 for _ in range(3)]
    for y, x in itertools.product(range(24), range(32)):
        if any(left <= x < right and top <= y < bottom for left, top, right, bottom in boxes):
            shares[y // 8][x // 8] += 1 / 64
    return shares


@pytest.mark.parametrize(
    "boxes", [[(0, 0, 32, 24)], [(3, 5, 17, 20)], [(3, 5, 17, 20), (10, 0, 31, 9)], [(8, 8, 9, 9)]]
)
def test_box_coverage_matches_pixel_count(boxes):
    torch.testing.assert_close(
        box_coverage(GRID, boxes), torch.tensor(coverage_by_pixels(boxes), dtype=torch.float64)
    )


def test_energy_in_boxes_uses_positive_values():
    boxes, values = [(3, 5, 17, 20)], torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    share = coverage_by_pixels(boxes)
    cells = list(itertools.product(range(3), range(4)))
    positive = {cell: max(0.0, values[cell].item()) for cell in cells}
    expected = sum(positive[r, c] * share[r][c] for r, c in cells) / sum(positive.values())
    assert energy_in_boxes(values, box_coverage(GRID, boxes)) == pytest.approx(expected)
    assert energy_in_boxes(torch.ones(3, 4), box_coverage(GRID, boxes)) == pytest.approx(14 * 15 / (24 * 32))
    assert energy_in_boxes(-torch.ones(3, 4), box_coverage(GRID, boxes)) == pytest.approx(
        14 * 15 / (24 * 32)
    ), "a map without positive values scores as chance"


def test_pointing_hit_requires_centre_of_largest_patch_inside():
    values = torch.zeros(3, 4)
    values[1, 2] = 1.0  # centre at x 20, y 12
    assert pointing_hit(values, GRID, [(20, 12, 21, 13)]) == 1.0
    assert (
        pointing_hit(values, GRID, [(20.5, 12, 32, 24)]) == 0.0
        and pointing_hit(values, GRID, [(0, 0, 20, 24)]) == 0.0
    )
    values[0, 0] = 1.0
    assert pointing_hit(values, GRID, [(20, 12, 21, 13)]) == 0.5, "two largest patches share the hit"
    assert pointing_hit(torch.zeros(3, 4), GRID, [(0, 0, 16, 24)]) == 0.5, "a constant map hits by chance"
