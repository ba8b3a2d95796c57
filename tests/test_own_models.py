"""Tests of docs/own-models.md: its code runs, its mapping is read, its callbacks follow a training."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import timm
import torch
import transformers

import vitviz
from vitviz.engine.formats.mapping import parse_mapping

TEXT = (Path(__file__).parent.parent / "docs" / "own-models.md").read_text(encoding="utf-8")
NAMES: dict = {}
for block in re.findall(r"```python\n(.*?)```", TEXT, re.S):
    exec(compile(block, "own-models.md", "exec"), NAMES)
SIZES = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "image_size": 32, "patch_size": 8, "num_labels": 5,
}  # fmt: skip


def test_what_the_examples_leave_is_as_they_say():
    assert NAMES["distance"].shape == (2, 3)
    assert NAMES["inspector"].checkpoint.name.startswith("vitviz-tiny?mean=")
    assert NAMES["inspector"].checkpoint.assumed == ()


def test_the_mapping_is_read():
    (text,) = re.findall(r"```toml\n(.*?)```", TEXT, re.S)
    mapping = parse_mapping(text, "own-models.md")
    given = mapping.given
    assert (given.heads, given.epsilon, given.activation) == (3, 1e-5, "gelu")
    tensors = {f"layers.0.{one}.weight": torch.full((2, 2), float(i)) for i, one in enumerate("qkv")}
    joined = mapping.translated(tensors, "x")["blocks.0.attn.qkv.weight"]
    assert joined[:, 0].tolist() == [0, 0, 1, 1, 2, 2]


def test_a_callback_like_lightnings_sees_each_epoch():
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=5)
    module = SimpleNamespace(model=model)
    module = SimpleNamespace(
        model=timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2, num_classes=5)
    )
    watching = NAMES["Watching"](vitviz.sample_image("coffee"))
    optimiser = torch.optim.SGD(module.model.parameters(), 0.5)
    for epoch in range(2):
        module.model.train()
        module.model(torch.randn(2, 3, 32, 32)).square().sum().backward()
        optimiser.step()
        watching.on_train_epoch_end(SimpleNamespace(current_epoch=epoch), module)
        assert module.model.training
    first, second = watching.seen
    assert first.shape == (2, 3) and not first.equal(second)


@pytest.mark.parametrize("bf16", [False, True])
def test_transformers_trainer_calls_its_own(tmp_path, bf16):
    """With bf16, accelerate wraps `forward` in an autocast, and training runs inside it."""
    torch.manual_seed(0)
    model = transformers.ViTForImageClassification(transformers.ViTConfig(**SIZES))
    pictures = [{"pixel_values": torch.randn(3, 32, 32), "labels": i % 5} for i in range(8)]
    watching = NAMES["WatchingTrainer"](vitviz.sample_image("coffee"))
    arguments = transformers.TrainingArguments(
        tmp_path, num_train_epochs=2, per_device_train_batch_size=4, report_to=[], save_strategy="no",
        learning_rate=0.1, use_cpu=True, disable_tqdm=True, bf16=bf16,
    )  # fmt: skip
    transformers.Trainer(model, arguments, train_dataset=pictures, callbacks=[watching]).train()
    first, second = watching.seen
    assert first.shape == (2, 4) and not first.equal(second)
    assert ("forward" in vars(model)) is ("_original_forward" in vars(model)) is bf16
    if bf16:
        again = NAMES["WatchingTrainer"](watching.picture)
        with torch.autocast("cpu", torch.bfloat16):  # as during a training step
            again.on_epoch_end(None, SimpleNamespace(global_step=4), None, model=model)
        torch.testing.assert_close(again.seen[0], second)
