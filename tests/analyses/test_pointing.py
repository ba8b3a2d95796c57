"""Pointing game and energy in the box, against pixels counted one by one."""

import itertools

import pytest
import torch

from vitviz.analyses.faithfulness.pointing import box_coverage, energy_in_boxes, pointing_hit
from vitviz.traces.grid import Grid

GRID = Grid(3, 4, (8, 8), ("class",))


def counted(boxes):
    """Share of each patch's pixels inside any box, by plain loops."""
    found = [[0.0] * 4 for _ in range(3)]
    for y, x in itertools.product(range(24), range(32)):
        if any(left <= x < right and top <= y < bottom for left, top, right, bottom in boxes):
            found[y // 8][x // 8] += 1 / 64
    return found


@pytest.mark.parametrize(
    "boxes", [[(0, 0, 32, 24)], [(3, 5, 17, 20)], [(3, 5, 17, 20), (10, 0, 31, 9)], [(8, 8, 9, 9)]]
)
def test_the_share_that_boxes_cover_is_counted_in_pixels(boxes):
    torch.testing.assert_close(box_coverage(GRID, boxes), torch.tensor(counted(boxes), dtype=torch.float64))


def test_energy_is_the_positive_part_in_the_box():
    boxes, values = [(3, 5, 17, 20)], torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    share = counted(boxes)
    cells = list(itertools.product(range(3), range(4)))
    positive = {cell: max(0.0, values[cell].item()) for cell in cells}
    expected = sum(positive[r, c] * share[r][c] for r, c in cells) / sum(positive.values())
    assert energy_in_boxes(values, box_coverage(GRID, boxes)) == pytest.approx(expected)
    assert energy_in_boxes(torch.ones(3, 4), box_coverage(GRID, boxes)) == pytest.approx(14 * 15 / (24 * 32))
    assert energy_in_boxes(-torch.ones(3, 4), box_coverage(GRID, boxes)) == pytest.approx(
        14 * 15 / (24 * 32)
    ), "blank is chance"


def test_a_hit_is_a_largest_patch_whose_centre_is_inside():
    values = torch.zeros(3, 4)
    values[1, 2] = 1.0  # its centre is at x 20, y 12
    assert pointing_hit(values, GRID, [(20, 12, 21, 13)]) == 1.0
    assert (
        pointing_hit(values, GRID, [(20.5, 12, 32, 24)]) == 0.0
        and pointing_hit(values, GRID, [(0, 0, 20, 24)]) == 0.0
    )
    values[0, 0] = 1.0
    assert pointing_hit(values, GRID, [(20, 12, 21, 13)]) == 0.5, "two largest share it"
    assert pointing_hit(torch.zeros(3, 4), GRID, [(0, 0, 16, 24)]) == 0.5, "a constant map hits by chance"
