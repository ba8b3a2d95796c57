"""The capture against timm's own unfused attention, and its refusal of what it cannot see."""

import threading

import pytest
import timm
import torch
import torch.nn.functional as F
from einops import rearrange

from vitviz.engine import capture, memory, record
from vitviz.engine.checkpoint import Checkpoint, Loaded
from vitviz.engine.images import open_image
from vitviz.engine.inspector import Inspector
from vitviz.engine.preprocess import Preprocessing, prepare
from vitviz.errors import OutOfMemory, UnsupportedModel, VitvizError

# One of each kind: plain, distilled, LayerScale, registers, no class token, CLIP's norm before the blocks, relative
# bias per layer and shared, rotary embedding, rotary with registers, query-key norm, pooling, hybrid stem.
ARCHITECTURES = [
    "vit_tiny_patch16_224",
    "deit_tiny_distilled_patch16_224",
    "deit3_small_patch16_224",
    "vit_small_patch14_reg4_dinov2",
    "vit_small_patch16_dinov3",
    "vit_base_patch32_clip_224",
    "beit_base_patch16_224",
    "beitv2_base_patch16_224",
    "vit_relpos_small_patch16_224",
    "vit_srelpos_small_patch16_224",
    "eva02_tiny_patch14_224",
    "vit_small_patch16_rope_224",
    "vit_base_patch16_siglip_224",
    "vit_tiny_r_s16_p8_224",
]


def perturbed(name: str, **options) -> torch.nn.Module:
    """Random weights with nothing left at zero: a bias initialised to zero would pass any check."""
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, **options).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    return model


def inspect(model: torch.nn.Module, name: str = "random") -> Inspector:
    height, width = model.patch_embed.img_size
    preprocessing = Preprocessing((height, width), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    return Inspector(Loaded(Checkpoint(name, None, "local", ""), model, preprocessing), "cpu")


def unfused(model: torch.nn.Module, pixels: torch.Tensor) -> list[torch.Tensor]:
    """What timm itself computes in the open: the input of each block's attention dropout."""
    seen, handles = [], []
    for block in model.blocks:
        block.attn.fused_attn = False
        handles.append(block.attn.attn_drop.register_forward_pre_hook(lambda module, args: seen.append(args[0][0])))
    with torch.no_grad():
        model(pixels)
    for handle, block in zip(handles, model.blocks):
        handle.remove()
        block.attn.fused_attn = True
    return seen


def noise(seed: int = 0, size: tuple[int, int] = (260, 300)):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(*size, 3, generator=generator) * 255).to(torch.uint8).numpy()


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_attention_equals_timms_own_unfused_attention(name):
    model = perturbed(name, **({} if "r_s16" in name else {"depth": 2}))
    inspector = inspect(model, name)
    trace = inspector.trace(noise())
    pixels = prepare(open_image(noise()), inspector.preprocessing).tensor[None]
    expected = unfused(model, pixels)
    assert len(expected) == len(trace.layers)
    for layer, attention in enumerate(expected):
        torch.testing.assert_close(trace.attention(layer), attention, atol=1e-5, rtol=0)
    if model.num_classes:
        with torch.no_grad():
            torch.testing.assert_close(trace.logits, model(pixels)[0], atol=1e-5, rtol=1e-5)


def test_the_residual_stream_and_both_embeddings_are_the_models_own():
    model = perturbed("vit_small_patch14_reg4_dinov2", depth=2, img_size=70, num_classes=3)
    trace = inspect(model).trace(noise())
    assert trace.grid.prefix_names == ("class", "register 1", "register 2", "register 3", "register 4")
    assert trace.tokens[0].shape == (5 + 25, 384) and len(trace.tokens) == 3
    table = model.pos_embed[0, -25:]
    torch.testing.assert_close(trace.position_embedded, trace.patch_embedding + table)
    with torch.no_grad():
        torch.testing.assert_close(model.forward_head(model.norm(trace.tokens[-1][None]))[0], trace.logits)


def test_a_norm_between_embedding_and_blocks_does_not_spoil_the_norms_of_the_embedding():
    model = perturbed("vit_base_patch32_clip_224", depth=1)
    trace = inspect(model).trace(noise())
    torch.testing.assert_close(trace.position_embedded - trace.patch_embedding, model.pos_embed[0, 1:].detach(), atol=1e-5, rtol=1e-5)
    assert not torch.allclose(trace.position_embedded, trace.tokens[0][1:])


def test_features_and_clips_projection_are_no_classes():
    features = perturbed("vit_tiny_patch16_224", depth=1, num_classes=0)
    assert inspect(features).trace(noise()).logits is None
    clip = perturbed("vit_base_patch32_clip_224", depth=1, num_classes=512)
    assert inspect(clip, "my own clip_ fine-tuned").trace(noise()).logits.shape == (512,)
    for name, expected in [("vit_base_patch32_clip_224.openai", False), ("vit_base_patch32_clip_224.laion2b_ft_in1k", True)]:
        assert record.classifies(clip, Checkpoint(name, None, "hub", "")) is expected


def test_attention_pooling_is_kept_apart():
    trace = inspect(perturbed("vit_base_patch16_siglip_224", depth=2)).trace(noise())
    assert trace.pool == "attention" and len(trace.layers) == 2
    assert trace.pooling.weights().shape == (12, 1, 196)


@pytest.mark.parametrize("name", ["beit_base_patch16_224", "vit_relpos_small_patch16_224"])
def test_a_relative_bias_is_kept_as_a_table(name):
    trace = inspect(perturbed(name, depth=2)).trace(noise())
    assert all(layer.bias.table is not None and layer.bias.dense is None for layer in trace.layers)
    assert trace.nbytes < 20e6


def test_a_bias_that_is_no_table_is_kept_whole_and_still_right():
    model = perturbed("vit_relpos_small_patch16_224", depth=1)

    def crooked(*args, **kwargs):
        return torch.randn(1, 6, 196, 196, generator=torch.Generator().manual_seed(1))

    model.blocks[0].attn.rel_pos.get_bias = crooked
    trace = inspect(model).trace(noise())
    assert trace.layers[0].bias.dense is not None
    assert trace.layers[0].bias.dense.shape == (6, 196, 196)


@pytest.mark.parametrize(
    "name, options, reason",
    [
        ("swin_tiny_patch4_window7_224", {}, "no single stack"),
        ("cait_xxs24_224", {}, "attention calls"),
        ("xcit_nano_12_p16_224", {}, "fixed grid of patches"),
        ("samvit_base_patch16_224", {"depth": 2}, "is no plain Vision Transformer"),
        ("vit_dlittle_patch16_reg1_gap_256", {"depth": 1}, "2 attention calls"),
    ],
)
def test_what_is_no_plain_vit_is_refused_with_the_reason(name, options, reason):
    with pytest.raises(UnsupportedModel, match=reason):
        model = timm.create_model(name, pretrained=False, **options).eval()
        inspector = Inspector(
            Loaded(Checkpoint(name, name, "local", ""), model, Preprocessing(model.pretrained_cfg["input_size"][1:], (0.5,) * 3, (0.5,) * 3)), "cpu"
        )
        inspector.trace(noise())


def test_the_truth_check_sees_what_happens_after_the_call():
    model = perturbed("vit_tiny_patch16_224", depth=2)
    attention = model.blocks[1].attn

    def lying(x, *args, **kwargs):
        """What timm's attention does, but for one per cent between the fused call and the projection."""
        q, k, v = rearrange(attention.qkv(x), "batch token (three head dim) -> three batch head token dim", three=3, head=3)
        seen = F.scaled_dot_product_attention(q, k, v) * 1.01
        return attention.proj(attention.norm(rearrange(seen, "batch head token dim -> batch token (head dim)")))

    attention.forward = lying
    with pytest.raises(UnsupportedModel, match="block 2 .*1e-04 is expected"):
        inspect(model).trace(noise())


def modes_and_hooks(model) -> tuple[int, int]:
    hooks = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())
    return torch._C._len_torch_function_stack(), hooks


def test_nothing_is_left_behind_after_success_and_after_failure():
    model = perturbed("vit_tiny_patch16_224", depth=2)
    inspector = inspect(model)
    inspector.trace(noise())
    assert modes_and_hooks(model) == (0, 0)
    with pytest.raises(RuntimeError, match="on purpose"), inspector.hook("blocks.1.mlp", lambda tensor: (_ for _ in ()).throw(RuntimeError("on purpose"))):
        assert modes_and_hooks(model) == (0, 1)
        inspector.trace(noise())
    assert modes_and_hooks(model) == (0, 0)


def test_running_out_of_memory_is_a_sentence_and_the_inspector_lives_on():
    model = perturbed("vit_tiny_patch16_224", depth=1)
    inspector = inspect(model)

    def full(tensor):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with pytest.raises(OutOfMemory, match="smaller checkpoint"), inspector.hook("blocks.0.attn", full):
        inspector.trace(noise())
    assert inspector.trace(noise()).logits is not None
    assert modes_and_hooks(model) == (0, 0)


def test_two_threads_get_their_own_results():
    inspector = inspect(perturbed("vit_tiny_patch16_224", depth=3))
    alone = [inspector.trace(noise(seed)).attention(2) for seed in range(4)]
    together: dict[int, list] = {seed: [] for seed in range(4)}

    def work(seed):
        for _ in range(3):
            together[seed].append(inspector.trace(noise(seed)).attention(2))

    threads = [threading.Thread(target=work, args=[seed]) for seed in range(4)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    for seed in range(4):
        assert len(together[seed]) == 3
        for attention in together[seed]:
            torch.testing.assert_close(attention, alone[seed])


def test_hooks_read_and_replace():
    model = perturbed("vit_tiny_patch16_224", depth=2)
    inspector = inspect(model)
    seen = []
    with inspector.hook("blocks.1.input", lambda tensor: seen.append(tensor.clone())):
        trace = inspector.trace(noise())
    torch.testing.assert_close(seen[-1][0], trace.tokens[1])
    with inspector.hook("blocks.1.attn", torch.zeros_like), inspector.hook("blocks.1.mlp", torch.zeros_like):
        silenced = inspector.trace(noise())
    torch.testing.assert_close(silenced.tokens[2], silenced.tokens[1])
    with pytest.raises(VitvizError, match="expected blocks.N"):
        inspector.hook("blocks.2.mlp", print).__enter__()


def test_a_size_of_its_own_interpolates_positions_and_shares_the_weights():
    model = perturbed("vit_tiny_patch16_224", depth=2)
    inspector = inspect(model)
    trace = inspector.trace(noise(), size=(96, 160))
    assert (trace.grid.rows, trace.grid.cols) == (6, 10) and trace.view.picture.shape == (96, 160, 3)
    assert inspector.position_table((96, 160)).shape == (60, 192)
    assert inspector._at((96, 160)).blocks[0].attn.qkv.weight is model.blocks[0].attn.qkv.weight
    assert model.pos_embed.shape[1] == 197
    reference = timm.create_model("vit_tiny_patch16_224", depth=2, dynamic_img_size=True, pretrained=False).eval()
    reference.load_state_dict(model.state_dict())
    pixels = prepare(open_image(noise()), inspector.preprocessing.with_size((96, 160))).tensor[None]
    with torch.no_grad():
        torch.testing.assert_close(trace.logits, reference(pixels)[0], atol=1e-5, rtol=1e-5)
    with pytest.raises(VitvizError, match="nearest size that does is 96 x 160"):
        inspector.trace(noise(), size=(100, 160))


def test_a_size_beyond_the_memory_is_refused_before_it_is_tried(monkeypatch):
    inspector = inspect(perturbed("vit_tiny_patch16_224", depth=1))
    monkeypatch.setattr(memory, "free_bytes", lambda device: 10**9)
    with pytest.raises(OutOfMemory, match=r"65537 tokens .* needs about 35\.\d GB, but only 1\.0 GB are free"):
        inspector.trace(noise(), size=4096)
    assert inspector.trace(noise(), size=64).grid.patches == 16
    monkeypatch.setattr(memory, "free_bytes", lambda device: None)
    memory.require(10**18, inspector.device, "Where nothing is known, nothing is refused:")


def test_where_the_patch_does_not_divide_the_input_the_unseen_rim_is_left_out():
    model = perturbed("vit_tiny_patch16_224", depth=1, img_size=100)  # six patches of 16 px, and 4 px that no patch is cut from
    trace = inspect(model).trace(noise(size=(200, 200)))
    assert (trace.grid.rows, trace.grid.pixels) == (6, (96, 96))
    assert trace.view.picture.shape == (96, 96, 3)
    assert trace.view.box == pytest.approx((0, 0, 192, 192))


def test_streamed_output_equals_the_whole():
    trace = inspect(perturbed("beit_base_patch16_224", depth=1)).trace(noise())
    torch.testing.assert_close(record.streamed_output(trace.layers[0], block=50), trace.layers[0].output())


def test_a_model_without_blocks_is_refused_at_once():
    with pytest.raises(UnsupportedModel, match="ResNet is no plain Vision Transformer"):
        capture.transformer_blocks(timm.create_model("resnet18", pretrained=False))
