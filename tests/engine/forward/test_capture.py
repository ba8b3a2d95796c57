"""Captured attention against timm's own unfused attention; unsupported models are rejected."""

import pytest
import timm
import torch
import torch.nn.functional as F
from einops import rearrange

import vitviz
from tests.engine.forward.cases import ARCHITECTURES, QUICK
from tests.engine.random_inspectors import inspect, noise, perturbed
from tests.tiers import sweep
from vitviz.analyses.query import query_weights
from vitviz.engine.checkpoint import Checkpoint, Loaded
from vitviz.engine.forward import capture, tracing
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import Preprocessing, prepare
from vitviz.engine.inspector import Inspector
from vitviz.errors import UnsupportedModel


def unfused_attention(model: torch.nn.Module, pixels: torch.Tensor) -> list[torch.Tensor]:
    """Return the attention weights of timm's unfused code: the input of each layer's attention dropout."""
    weights, handles = [], []
    for block in model.blocks:
        block.attn.fused_attn = False
        handles.append(
            block.attn.attn_drop.register_forward_pre_hook(lambda module, args: weights.append(args[0][0]))
        )
    with torch.no_grad():
        model(pixels)
    for handle, block in zip(handles, model.blocks, strict=True):
        handle.remove()
        block.attn.fused_attn = True
    return weights


@sweep("name", ARCHITECTURES, quick=QUICK)
def test_attention_equals_unfused_timm_attention(name):
    model = perturbed(name, **({} if "r_s16" in name else {"depth": 2}))
    inspector = inspect(model, name)
    trace = inspector.trace(noise())
    pixels = prepare(open_image(noise()), inspector.preprocessing).tensor[None]
    expected = unfused_attention(model, pixels)
    assert len(expected) == len(trace.layers)
    for layer, attention in enumerate(expected):
        torch.testing.assert_close(trace.attention(layer), attention, atol=1e-5, rtol=0)
    if model.num_classes:
        with torch.no_grad():
            torch.testing.assert_close(trace.logits, model(pixels)[0], atol=1e-5, rtol=1e-5)


def test_trace_stores_residual_stream_and_both_embeddings():
    model = perturbed("vit_small_patch14_reg4_dinov2", depth=2, img_size=70, num_classes=3)
    trace = inspect(model).trace(noise())
    assert trace.grid.prefix_names == ("class", "register 1", "register 2", "register 3", "register 4")
    assert trace.tokens[0].shape == (5 + 25, 384) and len(trace.tokens) == 3
    table = model.pos_embed[0, -25:]
    torch.testing.assert_close(trace.position_embedded, trace.patch_embedding + table)
    with torch.no_grad():
        torch.testing.assert_close(model.forward_head(model.norm(trace.tokens[-1][None]))[0], trace.logits)


def test_pre_norm_does_not_affect_stored_embeddings():
    model = perturbed("vit_base_patch32_clip_224", depth=1)
    trace = inspect(model).trace(noise())
    torch.testing.assert_close(
        trace.position_embedded - trace.patch_embedding, model.pos_embed[0, 1:].detach(), atol=1e-5, rtol=1e-5
    )
    assert not torch.allclose(trace.position_embedded, trace.tokens[0][1:])


def test_features_and_clip_projection_are_not_classes():
    features = perturbed("vit_tiny_patch16_224", depth=1, num_classes=0)
    assert inspect(features).trace(noise()).logits is None
    clip = perturbed("vit_base_patch32_clip_224", depth=1, num_classes=512)
    assert inspect(clip, "my own clip_ fine-tuned").trace(noise()).logits.shape == (512,)
    for name, expected in [
        ("vit_base_patch32_clip_224.openai", False),
        ("vit_base_patch32_clip_224.laion2b_ft_in1k", True),
        ("vit_pe_core_base_patch16_224.fb", False),
        ("vit_base_mci_224.apple_mclip", False),
    ]:
        assert tracing.classifies(clip, Checkpoint(name, None, "hub", "")) is expected


def test_attention_pooling_is_stored_apart_from_layers():
    trace = inspect(perturbed("vit_base_patch16_siglip_224", depth=2)).trace(noise())
    assert trace.pool == "attention" and len(trace.layers) == 2
    assert trace.pooling.weights().shape == (12, 1, 196)


@pytest.mark.parametrize("name", ["beit_base_patch16_224", "vit_relpos_small_patch16_224"])
def test_relative_bias_is_stored_as_table(name):
    trace = inspect(perturbed(name, depth=2)).trace(noise())
    assert all(layer.bias.table is not None and layer.bias.dense is None for layer in trace.layers)
    assert trace.nbytes < 20e6


def test_dense_bias_is_stored_in_full():
    model = perturbed("vit_relpos_small_patch16_224", depth=1)

    def random_bias(*args, **kwargs):
        return torch.randn(1, 6, 196, 196, generator=torch.Generator().manual_seed(1))

    model.blocks[0].attn.rel_pos.get_bias = random_bias
    trace = inspect(model).trace(noise())
    assert trace.layers[0].bias.dense is not None
    assert trace.layers[0].bias.dense.shape == (6, 196, 196)


@pytest.mark.parametrize(
    "name, options, reason",
    [
        ("swin_tiny_patch4_window7_224", {}, "no single stack"),
        ("cait_xxs24_224", {}, "attention calls"),
        ("xcit_nano_12_p16_224", {}, "fixed grid of patches"),
        ("samvit_base_patch16_224", {"depth": 2}, "is not a plain Vision Transformer"),
        ("vit_dlittle_patch16_reg1_gap_256", {"depth": 1}, "2 attention calls"),
    ],
)
def test_unsupported_architecture_is_rejected_with_reason(name, options, reason):
    with pytest.raises(UnsupportedModel, match=reason):
        model = timm.create_model(name, pretrained=False, **options).eval()
        inspector = Inspector(
            Loaded(
                Checkpoint(name, name, "local", ""),
                model,
                Preprocessing(model.pretrained_cfg["input_size"][1:], (0.5,) * 3, (0.5,) * 3),
            ),
            "cpu",
        )
        inspector.trace(noise())


def test_attention_check_detects_change_after_attention_call():
    model = perturbed("vit_tiny_patch16_224", depth=2)
    attention = model.blocks[1].attn

    def scaled_forward(x, *args, **kwargs):
        """Compute timm's attention, scaled by 1.01 between the fused call and the projection."""
        q, k, v = rearrange(
            attention.qkv(x), "batch token (three head dim) -> three batch head token dim", three=3, head=3
        )
        attended = F.scaled_dot_product_attention(q, k, v) * 1.01
        return attention.proj(
            attention.norm(rearrange(attended, "batch head token dim -> batch token (head dim)"))
        )

    attention.forward = scaled_forward
    with pytest.raises(UnsupportedModel, match="block 2 .*1e-04 is expected"):
        inspect(model).trace(noise())


def test_model_without_blocks_is_rejected():
    with pytest.raises(UnsupportedModel, match="ResNet is not a plain Vision Transformer"):
        capture.transformer_blocks(timm.create_model("resnet18", pretrained=False))


@pytest.mark.parametrize(
    "name, options",
    [
        ("vit_so150m_patch16_reg4_map_256", {}),
        ("vit_base_patch16_siglip_224", {"class_token": True, "global_pool": "map"}),
    ],
)
def test_attention_pooling_may_exclude_prefix(name, options):
    model = perturbed(name, img_size=64, embed_dim=48, depth=2, num_heads=3, num_classes=5, **options)
    trace = inspect(model).trace(noise())
    weights = query_weights(trace)
    assert trace.pooling.k.shape[1] == 16 and (weights[: trace.grid.prefix] == 0).all()
    assert weights.sum() == pytest.approx(1) and vitviz.rollout(trace).shape == (4, 4)


@pytest.mark.parametrize("name", ["eva02_tiny_patch14_224", "vit_tiny_patch16_224"])
def test_trace_memory_is_at_most_nbytes(name):
    trace = inspect(perturbed(name, depth=2)).trace(noise())
    tensors = [
        *trace.tokens,
        trace.patch_embedding,
        trace.position_embedded,
        *(t for layer in trace.layers for t in (layer.q, layer.k, layer.v)),
    ]
    storages = {
        t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors if t is not None
    }
    assert sum(storages.values()) + trace.view.picture.nbytes <= 1.02 * trace.nbytes
