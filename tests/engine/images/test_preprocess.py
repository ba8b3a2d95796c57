"""Preprocessing against timm's own transform, bit by bit, and the view's box against linear ramps."""

import itertools

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.data import create_transform, resolve_data_config, resolve_model_data_config

from vitviz.engine.images.preprocess import Preprocessing, prepare
from vitviz.errors import CheckpointError, ImageError

UPLOADS = [(1, 1), (40, 30), (31, 97), (251, 200), (96, 96), (180, 10), (10, 199)]  # width, height
SIZES = [(96, 96), (48, 80), (80, 49)]  # height, width


def noise(width: int, height: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(width).integers(0, 256, (height, width, 3), dtype=np.uint8))


def config(size: tuple[int, int], **changes) -> dict:
    return {
        "input_size": (3, *size),
        "mean": (0.48, 0.45, 0.40),
        "std": (0.26, 0.25, 0.24),
        "interpolation": "bicubic",
    } | changes


@pytest.mark.parametrize("crop_mode", ["center", "squash", "border"])
@pytest.mark.parametrize("crop_pct", [0.875, 0.9, 0.95, 1.0, 1.15])
def test_preprocessed_input_equals_timm_bit_by_bit(crop_mode, crop_pct):
    for size, upload in itertools.product(SIZES, UPLOADS):
        values = config(size, crop_mode=crop_mode, crop_pct=crop_pct)
        prepared, expected = (
            prepare(noise(*upload), Preprocessing.from_config(values)),
            create_transform(**values)(noise(*upload)),
        )
        assert prepared.tensor.shape == (3, *size) and prepared.tensor.dtype == torch.float32
        assert torch.equal(prepared.tensor, expected), (size, upload)
        assert prepared.view.upload == upload and prepared.view.picture.dtype == np.uint8
        pixels = torch.from_numpy(prepared.view.picture).permute(2, 0, 1) / 255
        again = (pixels - torch.tensor(values["mean"])[:, None, None]) / torch.tensor(values["std"])[
            :, None, None
        ]
        assert torch.equal(prepared.tensor, again), "the view is not the normalised image"


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"])
def test_every_interpolation_equals_timm(interpolation):
    values = config((48, 64), interpolation=interpolation, crop_pct=0.9)
    assert torch.equal(
        prepare(noise(90, 70), Preprocessing.from_config(values)).tensor,
        create_transform(**values)(noise(90, 70)),
    )


@pytest.mark.parametrize(
    "name",
    [
        "deit_tiny_patch16_224.fb_in1k",
        "vit_base_patch16_clip_224.openai",
        "vit_base_patch16_siglip_224.webli",
        "vit_small_patch14_dinov2.lvd142m",
    ],
)
def test_published_config_is_followed_like_timm(name):
    published = timm.get_pretrained_cfg(name).to_dict()
    transform = create_transform(**resolve_data_config(pretrained_cfg=published))
    assert torch.equal(
        prepare(noise(120, 200), Preprocessing.from_config(published)).tensor, transform(noise(120, 200))
    )


def test_model_config_gives_timm_input():
    model = timm.create_model("vit_tiny_patch16_384", pretrained=False)
    expected = create_transform(**resolve_model_data_config(model))(noise(500, 410))
    assert torch.equal(
        prepare(noise(500, 410), Preprocessing.from_config(model.pretrained_cfg)).tensor, expected
    )


@pytest.mark.parametrize("crop_mode", ["center", "squash", "border"])
@pytest.mark.parametrize("crop_pct", [0.875, 1.0, 1.15])
def test_view_box_is_input_area_on_upload(crop_mode, crop_pct):
    """Resizing keeps a linear ramp, so the value at a column's centre gives its position on the upload."""
    for size, (width, height) in itertools.product(SIZES, [(451, 300), (300, 451), (40, 31), (97, 30)]):
        ramps = np.zeros((height, width, 3), dtype=np.uint8)
        ramps[..., 0] = np.rint((np.arange(width) + 0.5) * 255 / width)
        ramps[..., 1] = np.rint((np.arange(height)[:, None] + 0.5) * 255 / height)
        view = prepare(
            Image.fromarray(ramps),
            Preprocessing.from_config(config(size, crop_mode=crop_mode, crop_pct=crop_pct)),
        ).view
        left, top, right, bottom = view.box
        middle = (
            view.picture[view.picture.shape[0] // 2, :, 0],
            view.picture[:, view.picture.shape[1] // 2, 1],
        )
        for values, (start, end), length in zip(
            middle, ((left, right), (top, bottom)), (width, height), strict=True
        ):
            pixel = (end - start) / len(values)
            # Only where the ramp is linear: outside the padding and the border that the filter mirrors.
            at = start + (np.arange(len(values)) + 0.5) * pixel
            inside = np.flatnonzero((at > 3 * max(pixel, 1)) & (at < length - 3 * max(pixel, 1)))
            slope, offset = np.polyfit(inside + 0.5, values[inside].astype(float) * length / 255, 1)
            # A crop that is off by one is off by a whole pixel of the resized image.
            assert offset == pytest.approx(start, abs=0.4 * pixel), (size, width, height)
            assert offset + slope * len(values) == pytest.approx(end, abs=0.4 * pixel), (size, width, height)


@pytest.mark.parametrize(
    "upload, size, crop_mode, crop_pct, box",
    [
        (
            (451, 300),
            (224, 224),
            "center",
            0.9,
            (74 * 451 / 372, 12 * 300 / 248, 298 * 451 / 372, 236 * 300 / 248),
        ),  # 372 x 248
        ((300, 300), (224, 224), "center", 1.0, (0, 0, 300, 300)),
        ((1, 1), (224, 224), "center", 1.0, (0, 0, 1, 1)),
        ((400, 100), (200, 200), "squash", 1.0, (0, 0, 400, 100)),
        # 200 x 50 in the middle of 200 x 200
        ((400, 100), (200, 200), "border", 1.0, (0, -150, 400, 250)),
        (
            (200, 200),
            (115, 115),
            "center",
            1.15,
            (-14, -14, 216, 216),
        ),  # 100 x 100, 7 black pixels before and 8 after
    ],
)
def test_view_box_equals_hand_computed_box(upload, size, crop_mode, crop_pct, box):
    view = prepare(
        noise(*upload), Preprocessing.from_config(config(size, crop_mode=crop_mode, crop_pct=crop_pct))
    ).view
    assert view.box == pytest.approx(box, abs=1e-9)


def test_padding_is_mean_colour_in_border_mode_and_black_otherwise():
    white = Image.new("RGB", (400, 100), "white")
    border = prepare(
        white, Preprocessing.from_config(config((64, 64), crop_mode="border", crop_pct=1.0))
    ).view.picture
    assert border[0, 0].tolist() == [122, 115, 102] and border[32, 32].tolist() == [255] * 3
    beyond = prepare(white, Preprocessing.from_config(config((64, 64), crop_pct=1.15))).view.picture
    assert beyond[0, 0].tolist() == [0] * 3 and beyond[32, 32].tolist() == [255] * 3


def test_missing_config_values_default_to_timm():
    plain = Preprocessing.from_config({})
    assert plain == Preprocessing(
        (224, 224), (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), "bicubic", 0.875, "center"
    )
    assert Preprocessing.from_config({"interpolation": "random"}).interpolation == "bilinear"
    assert Preprocessing.from_config({"mean": [0.5] * 3, "input_size": [3, 8, 16]}).mean == (
        0.5,
        0.5,
        0.5,
    ), "JSON has no tuples"
    assert plain.with_size((64, 32)) == Preprocessing.from_config({"input_size": (3, 64, 32)})


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"input_size": (1, 28, 28)}, "1 channels, but there are 3 means"),
        ({"mean": (0.5,)}, "1 means"),
        ({"input_size": (224, 224)}, "cannot be read"),
        ({"input_size": "large"}, "cannot be read"),
        ({"mean": ["a", "b", "c"]}, "cannot be read"),
        ({"std": (0.5, 0.0, 0.5)}, "must be above 0"),
        ({"crop_pct": -1}, "crop_pct -1.0"),
        ({"interpolation": "magic"}, "'magic'; expected one of nearest"),
        ({"crop_mode": "smart"}, "'smart'; expected one of center"),
    ],
)
def test_invalid_config_is_rejected(changes, words):
    with pytest.raises(CheckpointError, match=words):
        Preprocessing.from_config(changes)


def test_only_rgb_images_are_prepared():
    with pytest.raises(ImageError, match="in mode L. Open it with open_image"):
        prepare(Image.new("L", (9, 9)), Preprocessing.from_config({}))


@pytest.mark.parametrize(
    "config",
    [
        *({"crop_pct": value} for value in (1e9, 1e-9, float("nan"))),
        *({"std": (value,) * 3} for value in (1e-300, 1e-38, float("nan"), float("inf"))),
        *({"mean": (value, 0, 0)} for value in (float("inf"), 1e300)),
    ],
    ids=str,
)
def test_extreme_config_value_is_rejected(config):
    with pytest.raises(CheckpointError, match="is not supported"):
        Preprocessing.from_config({"input_size": (3, 224, 224), **config})


def test_unusual_but_valid_config_is_accepted():
    for config in (
        {"crop_pct": 0.875},
        {"crop_pct": 1.14},
        {"std": (1 / 255,) * 3},
        {"std": (1.0,) * 3, "mean": (0.0,) * 3},
    ):
        Preprocessing.from_config({"input_size": (3, 224, 224), **config})
