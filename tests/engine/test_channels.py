"""Models of 1, 2, 4 and 13 channels: results equal those of plain hooks, and each view is
drawn or rejected.
"""

import io
from functools import partial

import numpy as np
import pytest
import tifffile
import timm
import torch
from einops import reduce
from PIL import Image
from torch import nn

import vitviz
from tests.engine.models.explicit_attention import ListViT
from tests.engine.small_models import perturbed
from vitviz.errors import AssumedWarning, CheckpointError, ImageError, UnsupportedModel, VitvizError
from vitviz.export.figure import upright_upload
from vitviz.views import VIEWS, Needs, ViewContext
from vitviz.views.routes import parse_settings

CHANNELS = (1, 2, 4, 13)
SIDE = 32


class ConvViT(ListViT):
    """A module without an equivalent timm model, with convolutional patch embedding."""

    def __init__(self, channels):
        super().__init__()
        self.patch = nn.Conv2d(channels, 32, 8, 8)

    def forward(self, image):
        x = self.patch(image).flatten(2).mT + self.pos_embedding
        x = torch.cat([self.cls_token.expand(len(x), -1, -1), x], 1)
        for attention, mlp in self.layers:
            x = attention(x) + x
            x = mlp(x) + x
        return self.head(self.norm(x).mean(dim=1))


def timm_model(channels):
    sizes = {"img_size": SIDE, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
    return perturbed(timm.create_model("vit_tiny_patch16_224", in_chans=channels, **sizes))


def statistics(channels):
    mean = tuple(0.3 + 0.4 * number / channels for number in range(channels))
    return {"mean": mean, "std": tuple(0.2 + value / 4 for value in mean)}


def inspect_channels(model, channels, **options):
    settings = {**statistics(channels), "crop_pct": 1.0, "device": "cpu", "size": SIDE, **options}
    return vitviz.Inspector.of(model, **settings)


def image_of(channels):
    return np.random.default_rng(channels).random((SIDE, SIDE, channels), dtype=np.float32)


def pixels_of(image):
    """Return the plain model's input, computed by hand."""
    mean, std = (torch.tensor(statistic)[:, None, None] for statistic in statistics(image.shape[-1]).values())
    return ((torch.from_numpy(image).permute(2, 0, 1) - mean) / std)[None]


def assert_same(actual, expected, atol=1e-6):
    torch.testing.assert_close(actual, expected, atol=atol, rtol=1e-5)


@pytest.mark.parametrize("channels", CHANNELS)
def test_timm_model_results_equal_plain_hooks(channels):
    model, image = timm_model(channels).eval(), image_of(channels)
    inspector = inspect_channels(model, channels)
    trace = inspector.trace(image)
    tokens, weights = [], []
    for block in model.blocks:
        block.attn.fused_attn = False
        block.register_forward_pre_hook(lambda part, args: tokens.append(args[0][0].detach()))
        block.attn.attn_drop.register_forward_hook(lambda part, args, out: weights.append(out))
    pixels = pixels_of(image).requires_grad_()
    logits = model(pixels)[0]
    for layer_weights in weights:
        layer_weights.retain_grad()
    logits[2].backward()
    assert_same(trace.logits, logits.detach())
    for layer in range(2):
        assert_same(trace.attention(layer), weights[layer][0].detach())
        assert_same(trace.tokens[layer], tokens[layer])
    first, last = (0.5 * (layer_weights[0].detach().mean(dim=0) + torch.eye(17)) for layer_weights in weights)
    assert_same(vitviz.rollout(trace).flatten(), (last @ first)[0, 1:])
    assert_same(inspector.patch_filters(), model.patch_embed.proj.weight.detach())
    assert abs(vitviz.logit_attribution(inspector, trace, 2).total - logits[2].item()) < 1e-4
    products = {
        "input_gradient": reduce(pixels * pixels.grad, "1 c (row y) (col x) -> row col", "sum", y=8, x=8),
        "attention_gradient": (weights[1] * weights[1].grad).sum(dim=(0, 1, 2))[1:].unflatten(0, (4, 4)),
    }
    for method, expected in products.items():
        assert_same(vitviz.saliency(inspector, image, 2, method=method).map.float(), expected.detach())
    assert vitviz.saliency(inspector, image, 2, method="leave_one_out").map.isfinite().all()


@pytest.mark.parametrize("channels", CHANNELS)
def test_custom_module_results_equal_plain_hooks(channels):
    model, image = ConvViT(channels).eval(), image_of(channels)
    inspector = inspect_channels(model, channels)
    trace, weights, inputs = inspector.trace(image), [], []
    for attention, _ in model.layers:
        attention.attend.register_forward_hook(lambda part, args, output: weights.append(output[0]))
        attention.register_forward_pre_hook(lambda part, args: inputs.append(args[0][0]))
    with torch.no_grad():
        assert_same(trace.logits, model(pixels_of(image))[0])
    for layer, expected in enumerate(weights):
        assert_same(trace.attention(layer), expected)
        assert_same(trace.tokens[layer], inputs[layer])
    assert_same(trace.patch_embedding, model.patch(pixels_of(image))[0].flatten(1).mT.detach())
    assert_same(inspector.patch_filters(), model.patch.weight.detach())
    assert f"It reads {channels} channel" in inspector.describe()


def test_number_of_means_gives_channels_of_flattened_patch():
    model = ListViT()
    model.patch = nn.Linear(4 * 8 * 8, 32)
    trace = inspect_channels(model, 4).trace(image := image_of(4))
    with torch.no_grad():
        assert_same(trace.logits, model.eval()(pixels_of(image))[0])


def image_forms(image):
    """Yield the same image in every form that users may pass."""
    first = np.ascontiguousarray(image.transpose(2, 0, 1))
    yield from (image, first, torch.from_numpy(image), torch.from_numpy(first), torch.from_numpy(first)[None])
    if image.shape[-1] == 1:
        yield image[..., 0]
    for planes in ("contig", "separate"):
        written = io.BytesIO()
        values = image if planes == "contig" or image.shape[-1] == 1 else first
        values = values[..., 0] if image.shape[-1] == 1 else values
        tifffile.imwrite(written, values, photometric="minisblack", planarconfig=planes)
        yield written.getvalue()
    pages = io.BytesIO()
    tifffile.imwrite(pages, first, photometric="minisblack")
    yield pages.getvalue()


@pytest.mark.parametrize("channels", CHANNELS)
def test_array_tensor_and_tiff_give_same_input(channels):
    inspector, image = inspect_channels(timm_model(channels), channels), image_of(channels)
    for form in image_forms(image):
        np.testing.assert_allclose(inspector.view(form).exact, image, atol=1e-7)
    coarse = np.rint(255 * image).astype(np.uint8)
    np.testing.assert_array_equal(inspector.view(coarse).exact, coarse.astype(np.float32) / 255)
    fine = np.rint(65535 * image).astype(np.uint16)
    np.testing.assert_allclose(inspector.view(fine).exact, fine / 65535, atol=1e-6)


def test_each_band_is_resized_and_cropped_like_timm():
    inspector = inspect_channels(timm_model(4), 4, crop_pct=0.8)
    image = np.random.default_rng(1).integers(0, 256, (70, 50, 4), dtype=np.uint8)
    view = inspector.view(image)
    for number in range(4):
        steps = timm.data.create_transform((1, SIDE, SIDE), crop_pct=0.8, mean=(0.0,), std=(1.0,),
                                           interpolation=inspector.preprocessing.interpolation)  # fmt: skip
        expected = steps(Image.fromarray(image[..., number]))[0]
        np.testing.assert_array_equal(view.exact[..., number], expected.numpy())
    assert view.box == inspector.view(image.astype(np.float32) / 255).box


@pytest.mark.parametrize(
    "channels, bands, shown",
    [(1, None, (0, 0, 0)), (2, None, (0, 0, 0)), (13, None, (0, 1, 2)), (13, (3, 2, 1), (3, 2, 1)),
     (13, [7], (7, 7, 7))],
)  # fmt: skip
def test_image_and_filters_show_selected_bands(channels, bands, shown):
    inspector, image = inspect_channels(timm_model(channels), channels, bands=bands), image_of(channels)
    trace = inspector.trace(image)
    np.testing.assert_allclose(trace.view.picture, np.rint(255 * image[..., shown]), atol=1)
    view = next(view for view in VIEWS if view.slug == "filters")
    subject = ViewContext(inspector, trace)
    raw = view.item(subject, "raw", parse_settings(view, {}, subject.about))
    order = inspector.patch_filters().flatten(1).norm(dim=1).argsort(descending=True)
    np.testing.assert_array_equal(raw, inspector.patch_filters()[order].permute(0, 2, 3, 1)[..., shown])
    assert f"channels: {channels}." in view.summary(subject)["note"]


@pytest.mark.parametrize("channels", CHANNELS)
def test_filter_responses_equal_convolution_of_all_channels(channels):
    model, image = timm_model(channels), image_of(channels)
    inspector = inspect_channels(model, channels)
    trace = inspector.trace(image)
    mean, std = (np.array(statistic) for statistic in statistics(channels).values())
    pixels = torch.from_numpy((image - mean) / std).permute(2, 0, 1)[None]
    kernels = model.patch_embed.proj.weight.detach().double()
    expected = nn.functional.conv2d(pixels, kernels, stride=8)[0]
    assert_same(vitviz.filter_responses(inspector, trace).double(), expected, 1e-5)
    components = vitviz.embedding_filters(inspector, 2).pictures
    expected = nn.functional.conv2d(pixels, components.permute(0, 3, 1, 2).double(), stride=8)[0]
    assert_same(vitviz.filter_responses(inspector, trace, components).double(), expected, 1e-5)


@pytest.mark.parametrize("channels", CHANNELS)
@pytest.mark.parametrize("build", [timm_model, ConvViT])
def test_every_view_is_drawn_or_rejected_with_reason(build, channels):
    inspector = inspect_channels(build(channels), channels)
    subject, refused = ViewContext(inspector, inspector.trace(image_of(channels))), []
    for view in VIEWS:
        if view.needs is Needs.SET:
            continue
        try:
            if view.unsupported(subject) is None:
                view.summary(subject)
                if not view.scope.on_request:
                    for array in view.numbers(subject, parse_settings(view, {}, subject.about)).values():
                        assert array.dtype.kind != "f" or not np.isinf(array).any()
                continue
        except UnsupportedModel:
            pass
        refused.append(view.slug)
    assert "tour" in refused and (build is ConvViT or refused == ["tour"])


def test_figure_shows_selected_bands_of_whole_image():
    inspector = inspect_channels(timm_model(4), 4, bands=(3, 2, 1))
    image = np.random.default_rng(1).random((40, 60, 4), dtype=np.float32)
    trace = inspector.trace(image)
    drawn = upright_upload(image, ViewContext(inspector, trace))
    np.testing.assert_array_equal(drawn, np.rint(255 * image[..., [3, 2, 1]]).astype(np.uint8))
    assert vitviz.figure("rollout", inspector, trace, picture=image).svg()
    assert "Rollout" in vitviz.show("rollout", inspector, trace, image=image, live=[]).page


def test_patches_are_painted_in_all_channels():
    inspector, image = inspect_channels(timm_model(4), 4, bands=(3, 2, 1)), image_of(4)
    mean = np.array(statistics(4)["mean"], np.float32)
    trace = inspector.trace(image, ablation=vitviz.Ablation(patches=[0], patches_as="mean"))
    np.testing.assert_allclose(trace.view.exact[:8, :8], np.broadcast_to(mean, (8, 8, 4)), atol=1e-6)
    np.testing.assert_array_equal(trace.view.picture[0, 0], np.rint(255 * mean[[3, 2, 1]]))
    changed = image.copy()
    changed[:8, :8] = mean
    assert_same(trace.logits, inspector.trace(changed).logits, 1e-5)


def test_rgb_image_becomes_grey_for_one_channel_only():
    photograph = vitviz.sample_image("coffee")
    with pytest.warns(AssumedWarning, match="converted to grey"):
        view = inspect_channels(timm_model(1), 1, interpolation="bilinear").view(photograph)
    steps = timm.data.create_transform((1, SIDE, SIDE), crop_pct=1.0, mean=(0.0,), std=(1.0,))
    np.testing.assert_array_equal(view.exact[..., 0], steps(photograph.convert("L"))[0].numpy())
    assert np.ptp(view.picture, axis=-1).max() == 0
    for channels in (2, 4, 13):
        with pytest.raises(ImageError, match=f"reads {channels} channels"):
            inspect_channels(timm_model(channels), channels).view(photograph)


def test_arguments_that_do_not_fit_channels_are_rejected():
    model = timm_model(13)
    for bands in ((13, 1, 2), (1, 2), (-1,), (1.5,), "red"):
        with pytest.raises(VitvizError, match="counted from 0"):
            inspect_channels(model, 13, bands=bands)
    assert inspect_channels(model, 13, bands=7).preprocessing.bands == (7,)
    with pytest.raises(CheckpointError, match="13 channels, but there are 2 means"):
        inspect_channels(model, 13, mean=(0.5, 0.4))
    with pytest.raises(CheckpointError, match="do not read RGB"):
        inspect_channels(timm_model(3), 3, bands=(2, 1, 0))
    inspector = inspect_channels(model, 13)
    for wrong in (image_of(4), np.zeros((9, 9)), torch.zeros(4, 9, 9), b"II*\0 no TIFF"):
        with pytest.raises(ImageError):
            inspector.view(wrong)
    with pytest.raises(ImageError, match="expected uint8"):
        inspector.view(image_of(13).astype(np.int64))
    with pytest.raises(UnsupportedModel, match="not applicable.*heads_as='zero'"):
        inspector.effects(image_of(13), 0)  # means exist for RGB images only
    assert inspector.effects(image_of(13), 0, heads_as="zero").heads.isfinite().all()
    trace = inspector.trace(image_of(13))
    for study in (
        partial(vitviz.edge_ablation, inspector, trace, 0, 1, 0, count=2),
        partial(vitviz.sufficient_edges, inspector, trace, draws=1),
    ):
        with pytest.raises(UnsupportedModel, match="not applicable.*parts_as='zero'"):
            study()
        assert study(parts_as="zero") is not None
    changed = vitviz.perturbation(inspector, image_of(13), "shift", draws=1)
    assert "red, green and blue" in str(changed.refused)


@pytest.mark.parametrize("channels", [1, 4])
def test_model_check_does_not_judge_normalisation_of_other_channels(channels):
    images = [image_of(channels), image_of(channels)[::-1].copy()]
    model_findings = vitviz.check(inspect_channels(timm_model(channels), channels), images).findings
    assert not {"no_forward_pass", "not_checked"} & {finding.name for finding in model_findings}
    assert not any("normalisation" in finding.name for finding in model_findings)


def test_four_channel_file_is_loaded_with_bands(tmp_path):
    from safetensors.torch import save_file

    torch.manual_seed(0)
    sizes = {"img_size": SIDE, "patch_size": 8, "embed_dim": 64, "depth": 2, "num_heads": 1, "num_classes": 5}
    model = perturbed(timm.create_model("vit_tiny_patch16_224", in_chans=4, **sizes)).eval()
    save_file(model.state_dict(), tmp_path / "four.safetensors")
    inspector = vitviz.load(
        tmp_path / "four.safetensors", heads=1, **statistics(4), bands=(3, 1, 0), device="cpu"
    )
    image = image_of(4)
    trace = inspector.trace(image)
    with torch.no_grad():
        assert_same(trace.logits, model(pixels_of(image))[0], 1e-5)
    assert inspector.preprocessing.bands == (3, 1, 0) and "4 channels" in inspector.checkpoint.note
    assert inspector.checkpoint.input_size == (4, SIDE, SIDE)
