"""Print figures: text is text, the pixel size is as requested, colours encode the analyses' numbers."""

import dataclasses
import io
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pypdfium2
import pytest
from PIL import Image

import vitviz
from tests.engine.random_inspectors import inspect, noise, perturbed
from tests.export.reading import cell_centres, image_of, texts, values_of_colours
from tests.tiers import sweep
from vitviz.charts.chart import Chart
from vitviz.engine.images import opening
from vitviz.errors import VitvizError
from vitviz.views import VIEWS
from vitviz.views.printing import is_printable

ROOT = Path(__file__).parents[2]
NO_NUMBER = re.compile(r"(?i)(?<![a-z])(nan|inf|none)(?![a-z])")
PRINTED = [view for view in VIEWS if is_printable(view)]
QUICK = [view for view in PRINTED if view.slug in ("rollout", "distance")]


def test_every_view_except_the_tour_has_a_figure(inspector, trace):
    reasons = {"tour": "because it has many steps"}
    assert {view.slug for view in VIEWS} - {view.slug for view in PRINTED} == set(reasons)
    for slug, why in reasons.items():
        with pytest.raises(VitvizError, match=why):
            vitviz.figure(slug, inspector, trace)


@pytest.mark.long
@sweep("view", PRINTED, quick=QUICK, ids=lambda view: view.slug)
def test_svg_and_pdf_contain_text_and_scale_labels_inside_the_edge(
    cached_figures, view, fast_faithfulness, fast_perturbation
):
    """Rendered by another program, no letter or line touches the sheet's edge."""
    for detail in (False, True):
        figure = cached_figures(view.slug, detail)
        said = texts(figure.svg())
        assert said and all(text.strip() for text in said)
        scales = [one.scale for row in figure.spec.rows for one in row if getattr(one, "scale", None)]
        for scale in scales:
            assert str(scale.label) in said
        for chart in (one for row in figure.spec.rows for one in row if isinstance(one, Chart)):
            assert str(chart.x_label) in said and str(chart.y_label) in said
        page = pypdfium2.PdfDocument(figure.pdf())[0]
        # the numbers of two axes may be extracted as one word
        copied = "".join(page.get_textpage().get_text_range().split())
        assert [text for text in said if "".join(text.split()) not in copied] == []
        sheet = np.asarray(page.render(scale=2).to_pil())
        edges = (sheet[:3], sheet[-3:], sheet[:, :3], sheet[:, -3:])
        assert min(edge.min() for edge in edges) >= 250, f"{view.slug}: the figure is cut off at the edge"


@pytest.mark.parametrize(("width", "dpi"), [(86, 150), (86, 300), (174, 300), (60, 600)])
def test_png_size_follows_width_and_resolution(cached_figures, width, dpi):
    image_of = Image.open(io.BytesIO(cached_figures("distance").png(width=width, dpi=dpi)))
    assert image_of.width == round(width / 25.4 * dpi)
    assert image_of.info["dpi"] == pytest.approx((dpi, dpi), abs=0.5)
    assert image_of.convert("RGB").getpixel((1, 1)) == (255, 255, 255)


def test_rollout_colours_encode_rollout(cached_figures, trace):
    expected = vitviz.rollout(trace, fusion="max", discard=0.5).numpy()
    svg = cached_figures("rollout", fusion="max", discard=0.5, smooth="off").svg()
    found = cell_centres(image_of(svg, "panel-1-values"), *expected.shape)
    low, high = float(expected.min()), float(expected.max())
    np.testing.assert_allclose(values_of_colours(found, low, high), expected, atol=(high - low) / 255)
    assert (found[..., 3] == round(255 * 0.65)).all()  # the opacity of the page
    ends = [f"{end:.3g}" for end in (low, high)]
    assert set(ends) <= set(texts(svg))


def test_attention_map_colours_encode_softmax_row(cached_figures, trace):
    svg = cached_figures("explorer", layer=3, head=2, token=40).svg()
    query, key = (getattr(trace.layers[2], name)[1].double() for name in ("q", "k"))
    scores = query[40] @ key.T * trace.layers[2].scale
    row = (scores - scores.max()).exp()
    expected = (row / row.sum())[1:].reshape(trace.grid.rows, -1).numpy()
    found = values_of_colours(
        cell_centres(image_of(svg, "panel-1-values"), *expected.shape), 0.0, float(expected.max())
    )
    np.testing.assert_allclose(found, expected, atol=float(expected.max()) / 255)
    assert any("Layer 3, head 2" in text for text in texts(svg))


@pytest.mark.parametrize("scale", ["own", "shared"])
def test_head_grid_shows_every_head_and_the_mean(cached_figures, trace, scale):
    svg, grid, token = cached_figures("explorer", True, scale=scale, token=40).svg(), trace.grid, 40
    maps = np.stack([trace.attention(layer)[:, token, 1:].double().numpy() for layer in range(8)])
    rows = np.concatenate([maps, maps.mean(axis=1, keepdims=True)], axis=1).swapaxes(0, 1)  # head layer patch
    high = maps.max() if scale == "shared" else 1.0
    expected = rows if scale == "shared" else rows / rows.max(axis=-1, keepdims=True)
    for row, tiles in enumerate(expected):
        pixels = image_of(svg, f"panel-2-row-{row + 1}")
        solid = pixels[:, pixels[0, :, 3] == 255]
        found = values_of_colours(cell_centres(solid, grid.rows, 8 * grid.cols), 0.0, high)
        wanted = tiles.reshape(8, grid.rows, grid.cols).swapaxes(0, 1).reshape(grid.rows, -1)
        # rounded twice: tiles have 255 levels of each map's largest weight, and so does the colour scale
        np.testing.assert_allclose(found, wanted, atol=1.5 * high / 255)


def test_attribution_map_is_diverging_and_notes_its_sum(cached_figures, inspector, trace):
    account = vitviz.logit_attribution(inspector, trace, target=int(trace.logits.argmax()))
    svg = cached_figures("evidence").svg()
    expected = account.patches.double().numpy()
    found = cell_centres(image_of(svg, "panel-1-values"), *expected.shape)[..., :3].astype(float)
    for is_for, sign in ((found[..., 0] > found[..., 2] + 12, 1), (found[..., 2] > found[..., 0] + 12, -1)):
        assert is_for.any() and (np.sign(expected[is_for]) == sign).all()  # orange for, blue against
    least = np.abs(expected) < 0.02 * np.abs(expected).max()
    assert (np.abs(found[least] - 240) < 14).all()
    told = f"Contributions sum to {account.total:.3f}, the logit = {account.patches.sum():.2f} patches "
    assert any(text.startswith(told) for text in texts(svg))
    account = cached_figures("evidence", True).spec.rows[0][1]
    assert [name for _, name in account.ticks] == [str(layer + 1) for layer in range(8)]


def test_distance_dots_and_reference_line_match_numbers(cached_figures, trace):
    """Dot heights are calibrated on the tick lines, which the file draws before the axis numbers."""
    import xml.etree.ElementTree as ET

    svg = "{http://www.w3.org/2000/svg}"
    root = ET.fromstring(cached_figures("distance").svg())
    groups = [node for node in root.iter(f"{svg}g") if re.match("(line2d|text)_", node.get("id") or "")]
    told = ["".join(group.itertext()).strip() for group in groups]
    lines = [groups[told.index(number) - 1].find(f"{svg}path") for number in ("0", "40")]
    ends = [float(line.get("d").split()[2]) for line in lines]
    uses = [node for node in root.iter(f"{svg}use") if "stroke-width: 0.3" in (node.get("style") or "")]
    expected = vitviz.attention_distance(trace).numpy()
    heights = np.array([float(node.get("y")) for node in uses])[: expected.size]
    found = (ends[0] - heights) / (ends[0] - ends[1]) * 40
    np.testing.assert_allclose(found, expected.ravel(), atol=0.05)
    dashed = [node.get("d") for node in root.iter(f"{svg}path") if "dasharray" in (node.get("style") or "")]
    level = max(
        ([float(one) for one in re.findall(r"[\d.]+", line)] for line in dashed), key=lambda at: at[2]
    )
    assert level[1] == level[3]  # across the whole chart; the legend's line is short
    even = vitviz.analyses.uniform_distance(trace.grid)
    assert (ends[0] - level[1]) / (ends[0] - ends[1]) * 40 == pytest.approx(even, abs=0.05)


def test_patch_tiles_equal_image_patches(cached_figures, trace):
    svg, grid = cached_figures("patches").svg(), trace.grid
    for row in (0, grid.rows - 1):
        pixels = image_of(svg, f"panel-1-row-{row + 1}")
        solid = pixels[:, pixels[0, :, 3] == 255, :3]
        times = solid.shape[0] // grid.patch[0]
        band = trace.view.picture[row * grid.patch[0] : (row + 1) * grid.patch[0]]
        assert (solid == np.repeat(np.repeat(band, times, axis=0), times, axis=1)).all()


@pytest.mark.processes
def test_equal_figures_are_equal_bytes_across_processes(cached_figures, tmp_path):
    code = (
        "import sys, vitviz, matplotlib; matplotlib.rcParams['font.size'] = 30;"
        "matplotlib.rcParams['svg.fonttype'] = 'path'; i = vitviz.load('vitviz-tiny', device='cpu');"
        "p = vitviz.sample_image('coffee');"
        "f = vitviz.figure('tokens', i, i.trace(p), detail=True, picture=p, show='norms');"
        "[open(f'{sys.argv[1]}/x.{e}', 'wb').write(f.file(e, 100, 150)) for e in ('svg', 'pdf', 'png')]"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=ROOT)
    figure = cached_figures("tokens", True, show="norms")
    for form in ("svg", "pdf", "png"):
        once, twice = (figure.file(form, 100, 150) for _ in range(2))
        assert once == twice == (tmp_path / f"x.{form}").read_bytes(), form


def test_figure_keeps_matplotlib_settings(cached_figures):
    import matplotlib

    before = dict(matplotlib.rcParams)
    cached_figures("rollout").pdf()
    assert dict(matplotlib.rcParams) == before


def test_name_has_view_checkpoint_and_changed_settings(cached_figures):
    assert cached_figures("rollout").name == "vitviz-rollout_vitviz-tiny"
    assert cached_figures("rollout", True, fusion="max", layers=(2, 5)).name == (
        "vitviz-rollout_vitviz-tiny_detail_fusion-max_layers-2-5"
    )


def test_pins_are_marked_and_layer_range_is_captioned(cached_figures):
    figure = cached_figures("explorer", pins=(5, 60))
    assert [panel.marks[0].cell for panel in figure.spec.rows[1]] == [4, 59]  # behind the class token
    assert "Layers: 2-5" in cached_figures("rollout", layers=(2, 5)).caption


def test_caption_has_definition_settings_source_and_citation(cached_figures, inspector):
    view = next(view for view in VIEWS if view.slug == "rollout")
    figure = cached_figures("rollout", True, fusion="max", layers=(2, 5))
    caption = figure.caption
    assert view.words.definition in figure.caption_as("md")
    assert "Ã_l = r I + (1-r) Ā_l with each row divided by its sum" in caption  # without LaTeX
    assert view.words.caveat in caption and view.words.source in caption
    assert "Heads fused by: Maximum" in caption and "Layers: 2-5" in caption
    assert inspector.checkpoint.trained_on in caption and "arXiv 2010.11929" in caption
    assert f"vitviz {vitviz.__version__}" in caption


def test_caption_has_zero_settings_and_height_before_width(inspector, photo):
    wide = inspector.trace(photo, size=(96, 128))
    caption = vitviz.figure("rollout", inspector, wide, discard=0.0).caption
    assert "Input 96 × 128 px, 12 × 16 patches" in caption
    (control,) = [
        one for one in next(one for one in VIEWS if one.slug == "rollout").controls if one.name == "discard"
    ]
    assert f"{control.label}: 0;" in caption


def test_caption_and_name_omit_settings_without_effect(inspector, photo):
    trace = inspector.trace(photo)
    plain = vitviz.figure("evidence", inspector, trace, paths=5)
    assert "Paths" not in plain.caption and "Depth" not in plain.caption and "paths" not in plain.name
    asked = vitviz.figure("evidence", inspector, trace, show="paths", paths=5)
    assert "Paths: 5" in asked.caption and "Depth" not in asked.caption and "paths-5" in asked.name
    wall = vitviz.figure(
        "explorer", inspector, trace, detail=True, show="rollout", direction="column", head=2
    )
    assert "The token: is attended by" in wall.caption and "Head: 2" not in wall.caption, "the wall is of it"


def test_save_writes_caption_file(cached_figures, tmp_path):
    path = cached_figures("filters").save(tmp_path / "filters.pdf", width=86)
    assert path.read_bytes()[:5] == b"%PDF-"
    assert (tmp_path / "filters.txt").read_text(encoding="utf-8") == cached_figures("filters").caption


def test_dark_option_sets_background(inspector, trace):
    for dark, paper in ((False, 255), (True, 15)):
        figure = vitviz.figure("distance", inspector, trace, dark=dark)
        assert Image.open(io.BytesIO(figure.png(60, 150))).convert("RGB").getpixel((1, 1))[0] == paper


@pytest.mark.parametrize(("language", "said"), [("zh-CN", "注意力"), ("ko", "어텐션")])
def test_figure_text_is_translated_only_with_a_font(inspector, trace, language, said, monkeypatch):
    from vitviz.charts.mpl import drawing, page

    figure = vitviz.figure("distance", inspector, trace, language=language)
    assert said in figure.caption
    if drawing.families(language) is not None:
        assert any(said in text for text in texts(figure.svg()))
    monkeypatch.setattr(page, "families", lambda tag: (drawing.USUAL,) if tag == "en" else None)
    assert "Mean attention distance (px)" in texts(figure.svg())


@pytest.mark.parametrize("language", ["zh-CN", "ko"])
def test_register_names_are_translated(language):
    from vitviz.charts.mpl import drawing

    if drawing.families(language) is None:
        pytest.skip("no font for it here")
    model = perturbed("vit_small_patch14_reg4_dinov2", img_size=56, depth=2, num_classes=5)
    inspector = inspect(model)
    said = texts(vitviz.figure("rollout", inspector, inspector.trace(noise()), language=language).svg())
    assert not any("register" in text for text in said)


def test_removed_patches_are_transparent(inspector, photo):
    without = vitviz.Ablation(patches=[0, 17], patches_as="dropped")
    trace = inspector.trace(photo, ablation=without)
    svg = vitviz.figure("tokens", inspector, trace).svg()
    alpha = cell_centres(image_of(svg, "panel-1-values"), trace.grid.rows, trace.grid.cols)[..., 3].ravel()
    assert sorted(np.flatnonzero(alpha == 0)) == [0, 17]
    assert "patches=1.18" in vitviz.figure("tokens", inspector, trace).caption


@pytest.mark.long
@sweep("view", PRINTED, quick=QUICK, ids=lambda view: view.slug)
def test_nan_is_never_written_as_text(inspector, photo, view, fast_faithfulness, fast_perturbation):
    trace = inspector.trace(photo, ablation=vitviz.Ablation(patches=[0, 17], patches_as="dropped"))
    for detail in (False, True):
        try:
            figure = vitviz.figure(view.slug, inspector, trace, detail=detail, picture=photo)
        except VitvizError:
            return  # the error states why the view is unavailable without these patches
        assert [one for one in [*texts(figure.svg()), figure.caption] if NO_NUMBER.search(one)] == []


def test_difference_is_refused_where_none_is_shown(inspector, photo, trace):
    changed = inspector.trace(photo, ablation=vitviz.Ablation(heads=[(1, 1)]))
    asked = {"before": trace, "difference": "on"}
    with pytest.raises(VitvizError, match="shows a difference only with show=similarity"):
        vitviz.figure("tokens", inspector, changed, show="components", **asked)
    figure = vitviz.figure("tokens", inspector, changed, show="similarity", depth=8, **asked)
    scale = figure.spec.rows[0][0].scale
    assert scale.low == -scale.high and np.abs(figure.spec.rows[0][0].values).max() > 0


def test_caption_states_assumptions_and_token_names(photo, tmp_path):
    from tests.engine.small_models import save_model, small_vit

    inspector = vitviz.load(save_model(small_vit(), tmp_path / "mine.safetensors"), heads=4, device="cpu")
    figure = vitviz.figure("tokens", inspector, inspector.trace(photo), show="similarity", token="6")
    assert (
        "Assumed, because the checkpoint’s file does not state it: pool=class, block=pre-norm,"
        " mean=0.485,0.456,0.406&std=" in (figure.caption)
    )
    assert "token: Patch 6" in figure.caption and "Similarity to Patch 6 " in figure.caption
    assert "token-5" in figure.name  # sequence position of patch 6 after the class token; files count from 0
    assert "Assumed" not in vitviz.figure("filters", vitviz.load("vitviz-tiny", device="cpu")).caption


def test_control_characters_in_labels_keep_svg_well_formed(inspector, trace):
    """XML must not contain control characters, escaped or not. An uploaded label file may."""
    labels = ("es\x01pre\x0bsso", *inspector.labels[1:])
    named = vitviz.figure("evidence", inspector, dataclasses.replace(trace, labels=labels), target="0")
    drawn = named.svg()
    ElementTree.fromstring(drawn)
    assert not re.search(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]", drawn)


def test_large_image_is_downscaled_and_crop_keeps_position(inspector, trace, photo, monkeypatch):
    def panel(view):
        return vitviz.figure(view, inspector, trace, picture=photo).spec.rows[0][0]

    whole, crop = panel("rollout"), panel("explorer")
    monkeypatch.setattr(opening, "MAX_DRAWN", 90)
    small, part = panel("rollout"), panel("explorer")
    share = 90 / max(trace.view.upload)
    assert max(small.picture.shape) == 90 and small.box == pytest.approx(
        np.multiply(share, whole.box), abs=0.3
    )
    assert part.picture.shape[:2] == pytest.approx(np.multiply(share, crop.picture.shape[:2]), abs=1)
    sized = Image.fromarray(crop.picture).resize(part.picture.shape[1::-1], Image.Resampling.BOX)
    assert np.abs(np.asarray(sized, float) - part.picture).mean() < 8


def test_choice_of_value_head_has_its_text_in_caption(photo, fast_perturbation):
    of_values = vitviz.load("vitviz-tiny", device="cpu", head_type="value")
    assert "Metric: Value" in vitviz.figure("experiment", of_values, of_values.trace(photo)).caption
