"""Every field of transformers' image processors, against AutoImageProcessor and the model."""

import json
from dataclasses import replace

import pytest
import torch
from PIL import Image

import vitviz
from tests.engine.random_inspectors import SHAPES, noise_image
from tests.engine.small_models import perturbed
from vitviz.engine.adapters.load import load
from vitviz.engine.formats.processors import data_config
from vitviz.engine.hub.catalogue import find_checkpoint
from vitviz.engine.images.preprocess import Preprocessing, prepare
from vitviz.engine.inspector import Inspector
from vitviz.errors import CheckpointError, ImageError

hf = pytest.importorskip("transformers", reason="transformers is the oracle for its own files")

SIZES = {"hidden_size": 48, "num_attention_heads": 4, "patch_size": 7, "num_hidden_layers": 2}
SQUARE = {"height": 28, "width": 28}
FIELDS = {  # preprocessor_config.json of a model of 28 px
    "resized": {"size": SQUARE},
    "by Fast": {"image_processor_type": "ViTImageProcessorFast", "size": 28, "resample": 3},
    "of a list": {"size": [28, 28], "resample": 0},
    "by lanczos": {"size": 28, "resample": 1},
    "not rescaled": {"size": 28, "do_rescale": False, "image_mean": [100, 110, 120], "image_std": 50},
    "rescaled otherwise": {"size": 28, "rescale_factor": 1 / 127.5, "image_mean": 1.0, "image_std": [1] * 3},
    "not normalised": {"size": 28, "do_normalize": False},
    "neither": {"size": 28, "do_normalize": False, "do_rescale": False},
    "cropped": {"size": {"shortest_edge": 33}, "do_center_crop": True, "crop_size": SQUARE},
    "crop_size unused": {"size": SQUARE, "crop_size": 14},
    "cropped square": {"size": 35, "do_center_crop": True, "crop_size": 28},
    "cropped alone": {"do_resize": False, "do_center_crop": True, "crop_size": 28},
    "null is false": {"do_resize": None, "do_center_crop": True, "crop_size": 28},
    "crop beyond": {"size": {"shortest_edge": 21}, "do_center_crop": True, "crop_size": 28},
    "limited": {
        "size": {"shortest_edge": 20, "longest_edge": 28}, "do_pad": True, "pad_size": SQUARE, "resample": 3,
    },
    "within": {"size": {"max_height": 28, "max_width": 28}, "do_pad": True, "pad_size": SQUARE},
    "padded crop": {
        "size": {"shortest_edge": 28}, "do_center_crop": True, "crop_size": [21, 25], "do_pad": True,
        "pad_size": 28,
    },
    "padded to itself": {"size": 28, "do_pad": True},
    "not square by default": {
        "size": 30, "default_to_square": False, "do_center_crop": True, "crop_size": 28,
        "do_convert_rgb": True,
    },
    "DeiT": {"image_processor_type": "DeiTImageProcessor", "size": 32, "crop_size": 28},
    "Beit": {"image_processor_type": "BeitImageProcessor", "size": 28, "do_pad": True, "pad_size": 14},
    "Bit": {"image_processor_type": "BitImageProcessor", "size": 31, "crop_size": SQUARE},
    "CLIP": {"image_processor_type": "CLIPImageProcessor", "size": {"shortest_edge": 28}, "crop_size": 28},
    "DINOv3": {"image_processor_type": "DINOv3ViTImageProcessorFast", "size": SQUARE},
    "DINOv3, bicubic": {
        "image_processor_type": "DINOv3ViTImageProcessor", "size": {"shortest_edge": 32}, "resample": 3,
        "do_center_crop": True, "crop_size": 28,
    },
    "Siglip": {"image_processor_type": "SiglipImageProcessor", "size": SQUARE},
    "of old": {"feature_extractor_type": "DeiTFeatureExtractor", "size": 32, "crop_size": 28},
}  # fmt: skip


@pytest.fixture(scope="module")
def vit(tmp_path_factory):
    """Return the folder of a small random model, and the model."""
    torch.manual_seed(0)
    model = hf.ViTForImageClassification(
        hf.ViTConfig(**SIZES, image_size=28, intermediate_size=96, num_labels=5)
    )
    folder = tmp_path_factory.mktemp("vit")
    perturbed(model).save_pretrained(folder)
    return folder, model


def write_processor(folder, fields):
    (folder / "preprocessor_config.json").write_text(json.dumps(fields))
    return hf.AutoImageProcessor.from_pretrained(folder)


@pytest.mark.parametrize("fields", FIELDS.values(), ids=FIELDS)
def test_folder_input_and_logits_equal_processor_and_model(fields, vit):
    folder, model = vit
    processor, inspector = (
        write_processor(folder, fields),
        Inspector(load(find_checkpoint(str(folder))), "cpu"),
    )
    for shape in SHAPES:
        expected = processor(noise_image(*shape), return_tensors="pt")["pixel_values"].float()
        prepared, size = inspector.forward.prepare(noise_image(*shape), None)
        scale = expected.abs().max().clamp_min(1)
        torch.testing.assert_close(prepared.tensor / scale, expected[0] / scale, atol=2e-6, rtol=0), shape
        prepared_view, _ = inspector.forward.prepare(prepared.view, None)
        assert torch.equal(prepared_view.tensor, prepared.tensor), "the view differs from the model input"
    (trace,) = inspector.traces([prepared], size)
    with torch.no_grad():
        torch.testing.assert_close(trace.logits, model(expected).logits[0], atol=1e-4, rtol=0)


def test_logits_equal_transformers_for_every_image_shape(vit):
    folder, model = vit
    processor = write_processor(folder, FIELDS["cropped"])
    inspector = vitviz.load(str(folder), device="cpu")
    for shape in SHAPES:
        with torch.no_grad():
            expected = model(**processor(noise_image(*shape), return_tensors="pt")).logits[0]
        torch.testing.assert_close(inspector.trace(noise_image(*shape)).logits, expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"do_resize": False}, "do_resize is false and do_center_crop is false"),
        ({"size": {"shortest_edge": 28}}, "size keeps each image's own shape and do_center_crop is false"),
        ({"size": {"longest_edge": 28}}, "size is .*longest_edge.*; expected are height and width or"),
        ({"size": {"min_pixels": 28, "max_pixels": 280}}, "size is .*min_pixels"),
        ({"size": {"height": 28}}, "size is"),
        ({"size": None}, "size is None"),
        ({"size": -28}, "size is -28"),
        ({"size": 28.5}, "size is 28.5"),
        ({"size": 2800, "do_center_crop": True, "crop_size": 28}, "size is 2800, more than 10 times"),
        ({"do_center_crop": True}, "crop_size is None"),
        ({"do_center_crop": True, "crop_size": {"shortest_edge": 28}}, "crop_size is"),
        ({"size": 28, "do_pad": True, "pad_size": {"longest_edge": 28}}, "pad_size is"),
        ({"size": 28, "do_pad": True, "pad_size": 21}, "pad_size is 21 x 21, smaller than the 28 x 28"),
        ({"size": 28, "resample": 4}, "resample is 4"),
        ({"size": 28, "resample": None}, "resample is None"),
        ({"size": 28, "resample": [3]}, r"resample is \[3\]"),
        ({"size": 28, "resample": "bicubic"}, "resample is 'bicubic'"),
        ({"size": 28, "rescale_factor": None}, "rescale_factor is None"),
        ({"size": 28, "rescale_factor": 0}, "rescale_factor is 0"),
        ({"size": 28, "image_mean": None}, "image_mean is None"),
        ({"size": 28, "image_std": [0.5, 0.5]}, "image_std is"),
        ({"size": 28, "do_normalize": "no"}, "do_normalize is 'no'"),
        ({"image_processor_type": "ConvNextImageProcessor"}, "image_processor_type is ConvNext"),
        ({"image_processor_type": "CLIPImageProcessor", "use_square_size": True}, "use_square_size"),
    ],
    ids=str,
)
def test_unsupported_processor_field_is_rejected_by_name(fields, reason):
    with pytest.raises(CheckpointError, match=f"preprocessor_config.json is not supported: .*{reason}"):
        data_config({"model_type": "vit", "image_size": 28}, fields)


def test_image_too_elongated_for_resizing_is_rejected():
    fields = {**FIELDS["within"]}
    preprocessing = Preprocessing.from_config(data_config({"model_type": "vit", "image_size": 28}, fields)[0])
    with pytest.raises(ImageError, match="600 x 15 pixels is too elongated.* would make it 28 x 0"):
        prepare(noise_image(600, 15), preprocessing)


def test_nested_processor_precedes_preprocessor_config(vit):
    folder, _ = vit
    write_processor(folder, {"size": 28, "image_mean": 0.1})
    nested = folder / "processor_config.json"
    nested.write_text(json.dumps({"image_processor": {"size": 28, "image_mean": 0.2}}))
    try:
        expected = hf.AutoImageProcessor.from_pretrained(folder).image_mean
        assert expected == load(find_checkpoint(str(folder))).preprocessing.mean[0] == 0.2
    finally:
        nested.unlink()


def test_crop_with_odd_margin_starts_like_transformers():
    """481 x 321 becomes 52 x 35. Of the 24 and 7 surplus pixels transformers cuts 12 and 3 at the start;
    timm would cut 4.
    """
    fields = {**FIELDS["cropped"], "size": {"shortest_edge": 35}}
    data, _ = data_config({"model_type": "vit", "image_size": 28}, fields)
    box = prepare(noise_image(481, 321), Preprocessing.from_config(data)).view.box
    across, down = 481 / 52, 321 / 35
    assert box == pytest.approx((12 * across, 3 * down, 40 * across, 31 * down))


def test_padding_is_right_and_below_in_mean_colour():
    fields = {**FIELDS["within"], "image_mean": [0.1, 0.2, 0.3]}
    data, _ = data_config({"model_type": "vit", "image_size": 28}, fields)
    prepared = prepare(Image.new("RGB", (100, 50), "white"), Preprocessing.from_config(data))
    assert prepared.view.box == pytest.approx((0, 0, 100, 100))
    assert not prepared.tensor[:, 14:].any() and prepared.tensor[:, :14].all()
    assert prepared.view.picture[20, 0].tolist() == [26, 51, 76]  # 25.5, 51 and 76.5, rounded to even


def test_other_input_size_scales_every_step(vit):
    folder, _ = vit
    write_processor(folder, FIELDS["cropped"])
    preprocessing = load(find_checkpoint(str(folder))).preprocessing
    for size in ((56, 56), (14, 28)):
        larger = {"size": {"shortest_edge": 66}, "do_center_crop": True, "crop_size": 56}
        actual = prepare(noise_image(481, 321), preprocessing.with_size(size)).tensor
        assert actual.shape == (3, *size)
        if size == (56, 56):
            expected = write_processor(folder, larger)(noise_image(481, 321), return_tensors="pt")[
                "pixel_values"
            ][0]
            torch.testing.assert_close(actual, expected, atol=1e-6, rtol=0)


def test_stated_crop_is_cut_like_transformers(vit):
    folder, _ = vit
    write_processor(folder, FIELDS["resized"])
    stated = vitviz.load(str(folder), crop_pct=28 / 33, crop_mode="center", device="cpu").preprocessing
    expected = write_processor(folder, FIELDS["cropped"])(noise_image(481, 321), return_tensors="pt")[
        "pixel_values"
    ][0]
    torch.testing.assert_close(prepare(noise_image(481, 321), stated).tensor, expected, atol=1e-6, rtol=0)
    border = vitviz.load(str(folder), crop_mode="border", device="cpu").preprocessing
    assert border.processor is None, "only timm has a border mode"


def test_exact_pixels_survive_ablation_and_shuffling(vit):
    folder, _ = vit
    write_processor(folder, FIELDS["DINOv3, bicubic"])
    inspector = vitviz.load(str(folder), device="cpu")
    trace = inspector.trace(noise_image(481, 321))
    assert trace.view.exact.shape == trace.view.picture.shape and trace.view.nbytes == 5 * 28 * 28 * 3
    for without in (vitviz.Ablation(), vitviz.Ablation(patches=[3], patches_as="mean")):
        edited = inspector.trace(noise_image(481, 321), ablation=without)
        assert torch.equal(inspector.trace(edited.view).logits, edited.logits)
    edited = inspector.experiment(noise_image(481, 321), shuffle=1)
    assert torch.equal(inspector.trace(edited.view).logits, edited.logits)
    rounded = inspector.trace(replace(trace.view, exact=None)).logits
    assert not torch.equal(rounded, trace.logits)


@pytest.mark.parametrize("kind", ["dinov2", "beit", "vit"])
def test_processor_of_other_size_than_model_is_followed(kind, tmp_path):
    own = {**SIZES, "image_size": 42, "num_labels": 5}
    config = {
        "dinov2": lambda: hf.Dinov2Config(**own, mlp_ratio=2),
        "beit": lambda: hf.BeitConfig(**own, intermediate_size=96, use_relative_position_bias=True),
        "vit": lambda: hf.ViTConfig(**own, intermediate_size=96),
    }[kind]()
    torch.manual_seed(0)
    model = perturbed(hf.AutoModelForImageClassification.from_config(config))
    model.save_pretrained(tmp_path)
    processor = write_processor(tmp_path, {**FIELDS["cropped"], "image_processor_type": "BitImageProcessor"})
    inspector = vitviz.load(str(tmp_path), device="cpu")
    assert "makes 28 x 28 px, but its positions were learned at 42 x 42" in inspector.checkpoint.note
    options = {} if kind == "dinov2" else {"interpolate_pos_encoding": True}
    with torch.no_grad():
        expected = model(**processor(noise_image(481, 321), return_tensors="pt"), **options).logits[0]
        pixels = inspector.forward.prepare(noise_image(481, 321), 42)[0].tensor[None]
        at_42 = model(pixels).logits[0]
    torch.testing.assert_close(inspector.trace(noise_image(481, 321)).logits, expected, atol=1e-5, rtol=0)
    (
        torch.testing.assert_close(
            inspector.trace(noise_image(481, 321), size=42).logits, at_42, atol=1e-5, rtol=0
        ),
        "the image was resized twice",
    )
