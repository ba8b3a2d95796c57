"""The inspector: hooks, threads, input sizes, memory limits, and clean-up."""

import threading

import pytest
import timm
import torch

from tests.engine.random_inspectors import inspect, noise, perturbed
from vitviz.engine import memory
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import prepare
from vitviz.errors import OutOfMemory, VitvizError


def modes_and_hooks(model) -> tuple[int, int]:
    hooks = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())
    return torch._C._len_torch_function_stack(), hooks


def test_out_of_memory_is_reported_and_inspector_still_works():
    model = perturbed("vit_tiny_patch16_224", depth=1)
    inspector = inspect(model)

    def raise_out_of_memory(tensor):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with (
        pytest.raises(OutOfMemory, match="smaller checkpoint"),
        inspector.hook("blocks.0.attn", raise_out_of_memory),
    ):
        inspector.trace(noise())
    assert inspector.trace(noise()).logits is not None
    assert modes_and_hooks(model) == (0, 0)


def test_concurrent_threads_get_own_results():
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


def test_hooks_read_and_replace_tensors():
    model = perturbed("vit_tiny_patch16_224", depth=2)
    inspector = inspect(model)
    tensors = []
    with inspector.hook("blocks.1.input", lambda tensor: tensors.append(tensor.clone())):
        trace = inspector.trace(noise())
    torch.testing.assert_close(tensors[-1][0], trace.tokens[1])
    with inspector.hook("blocks.1.attn", torch.zeros_like), inspector.hook("blocks.1.mlp", torch.zeros_like):
        silenced = inspector.trace(noise())
    torch.testing.assert_close(silenced.tokens[2], silenced.tokens[1])
    with pytest.raises(VitvizError, match="expected blocks.N"):
        inspector.hook("blocks.2.mlp", print).__enter__()


def test_other_size_interpolates_positions_and_shares_weights():
    model = perturbed("vit_tiny_patch16_224", depth=2)
    inspector = inspect(model)
    trace = inspector.trace(noise(), size=(96, 160))
    assert (trace.grid.rows, trace.grid.cols) == (6, 10) and trace.view.picture.shape == (96, 160, 3)
    assert inspector.position_table((96, 160)).shape == (60, 192)
    assert inspector.placed.at((96, 160)).blocks[0].attn.qkv.weight is model.blocks[0].attn.qkv.weight
    assert model.pos_embed.shape[1] == 197
    reference = timm.create_model(
        "vit_tiny_patch16_224", depth=2, dynamic_img_size=True, pretrained=False
    ).eval()
    reference.load_state_dict(model.state_dict())
    pixels = prepare(open_image(noise()), inspector.preprocessing.with_size((96, 160))).tensor[None]
    with torch.no_grad():
        torch.testing.assert_close(trace.logits, reference(pixels)[0], atol=1e-5, rtol=1e-5)
    with pytest.raises(VitvizError, match="nearest size that they divide is 96 x 160"):
        inspector.trace(noise(), size=(100, 160))


@pytest.mark.parametrize(
    ("architecture", "changes", "prefix"),
    [
        ("vit_tiny_patch16_224", {}, 1),
        ("deit_tiny_distilled_patch16_224", {}, 2),
        ("vit_tiny_patch16_224", {"reg_tokens": 4}, 5),
        ("vit_tiny_patch16_224", {"reg_tokens": 4, "no_embed_class": True}, 0),
    ],
)
def test_position_table_has_patch_rows_only(architecture, changes, prefix):
    """The table has every row of a patch and no row of a prefix token, in the model's order."""
    model = perturbed(architecture, depth=1, **changes)
    table = inspect(model).position_table()
    assert table.shape == (196, 192)
    for patch in range(196):
        assert table[patch].equal(model.pos_embed[0, prefix + patch]), patch


def test_size_beyond_memory_is_rejected_before_pass(monkeypatch):
    inspector = inspect(perturbed("vit_tiny_patch16_224", depth=1))
    monkeypatch.setattr(memory, "free_bytes", lambda device: 10**9)
    with pytest.raises(
        OutOfMemory, match=r"65537 tokens .* needs about 35\.\d GB, but only 1\.0 GB are free"
    ):
        inspector.trace(noise(), size=4096)
    assert inspector.trace(noise(), size=64).grid.patches == 16
    monkeypatch.setattr(memory, "free_bytes", lambda device: None)
    memory.require_memory(10**18, inspector.device, "Where nothing is known, nothing is refused:")


def test_pixels_outside_patches_are_cropped_from_view():
    model = perturbed(
        "vit_tiny_patch16_224", depth=1, img_size=100
    )  # six patches of 16 px, and 4 px outside all patches
    trace = inspect(model).trace(noise(size=(200, 200)))
    assert (trace.grid.rows, trace.grid.pixels) == (6, (96, 96))
    assert trace.view.picture.shape == (96, 96, 3)
    assert trace.view.box == pytest.approx((0, 0, 192, 192))


def test_wide_uncovered_margin_does_not_change_patch_size():
    inspector = inspect(
        perturbed("vit_tiny_patch16_224", depth=1, img_size=28, patch_size=8)
    )  # three patches and 4 px
    assert inspector.grid().patch == (8, 8) and inspector.grid().pixels == (24, 24)
    assert inspector.trace(noise(), size=32).grid.patches == 16
    assert (
        inspector.trace(noise(), size=28).grid == inspector.grid()
    )  # the native size is accepted, although the patch does not divide it
    moved = inspector.experiment(noise(), shuffle=1).view.picture
    assert not (moved == inspector.trace(noise()).view.picture).all()


def test_pass_leaves_no_hooks_or_modes_behind():
    model = perturbed("vit_tiny_patch16_224", depth=2)
    inspector = inspect(model)
    inspector.trace(noise())
    assert modes_and_hooks(model) == (0, 0)
    with (
        pytest.raises(RuntimeError, match="on purpose"),
        inspector.hook("blocks.1.mlp", lambda tensor: (_ for _ in ()).throw(RuntimeError("on purpose"))),
    ):
        inspector.trace(noise())
    assert modes_and_hooks(model) == (0, 0)
