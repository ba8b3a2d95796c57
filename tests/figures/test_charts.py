import inspect

import numpy as np
import pytest

from vitviz.figures.charts import distance_by_depth

distances = np.array([[30.0, 10.0, 20.0], [90.0, 110.0, 100.0]])
mass = np.array([[0.1, 0.2, 0.3], [0.4, 0.5, 0.6]])


def test_a_point_a_head_over_depth():
    dots, mean, _ = distance_by_depth(distances, 115.901, mass).data
    assert list(dots.x) == [1, 1, 1, 2, 2, 2] and list(dots.y) == [30, 10, 20, 90, 110, 100]
    np.testing.assert_allclose(dots.customdata[4], [2, 2, 0.5])
    assert list(mean.y) == [20, 100]


def test_sorted_heads_keep_their_number_and_mass():
    first, second, _ = distance_by_depth(distances, 115.901, mass, sorted_heads=True).data
    assert list(first.x) == [1, 2, 3] and list(first.y) == [10, 20, 30]
    np.testing.assert_allclose(first.customdata, [[1, 2, 0.2], [1, 3, 0.3], [1, 1, 0.1]])
    assert first.line.color != second.line.color


@pytest.mark.parametrize("form", [False, True])
def test_uniform_line_is_labelled_and_in_range(form):
    figure = distance_by_depth(distances, 115.901, mass, sorted_heads=form)
    line = figure.data[-1]
    assert list(line.y) == [115.901, 115.901] and "115.9 px" in line.name and line.line.dash == "dash"
    assert (
        figure.layout.yaxis.range[1] > 115.901
        and figure.layout.yaxis.title.text.endswith("(px)")
        and figure.layout.xaxis.title.text
    )


def test_without_prefix_tokens_nothing_is_said_of_them():
    assert "prefix" in distance_by_depth(distances, 1.0, mass).data[0].hovertemplate
    assert "prefix" not in distance_by_depth(distances, 1.0).data[0].hovertemplate


def test_shapes_that_do_not_fit():
    unchecked = inspect.unwrap(distance_by_depth)  # what a notebook meets, where no annotation is checked
    with pytest.raises(ValueError, match="axes"):
        unchecked(distances[0], 1.0)
    with pytest.raises(ValueError, match="mass"):
        unchecked(distances, 1.0, mass[:, :2])


def test_the_background_is_transparent():
    figure = distance_by_depth(distances, 1.0)
    assert figure.layout.paper_bgcolor == figure.layout.plot_bgcolor == "rgba(0,0,0,0)"


def test_a_subtitle_is_text_and_never_markup():
    title = distance_by_depth(distances, 1.0, subtitle="<b>x</b>").layout.title.text
    assert "<b>" not in title and "x" in title
