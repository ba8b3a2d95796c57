"""DINOv2's readout against transformers: class token and mean of the patches, concatenated."""

import pytest
import torch
import transformers as hf

from tests.engine.random_inspectors import noise
from vitviz.analyses.query import query_weights
from vitviz.analyses.rollout import rollout
from vitviz.engine.adapters.load import load
from vitviz.engine.hub.catalogue import find_checkpoint
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import prepare
from vitviz.engine.inspector import Inspector
from vitviz.views import ViewContext
from vitviz.views.rollout import RolloutView


def dinov2_case(folder, registers=0):
    """Return transformers' own classifier and an inspector of its saved folder."""
    options = {
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
        "num_labels": 5,
    }
    if registers:
        model = hf.Dinov2WithRegistersForImageClassification(
            hf.Dinov2WithRegistersConfig(**options, num_register_tokens=registers)
        )
    else:
        model = hf.Dinov2ForImageClassification(hf.Dinov2Config(**options))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(
        '{"size": {"height": 32, "width": 32}, "do_center_crop": false}'
    )
    return model.eval(), Inspector(load(find_checkpoint(str(folder))), "cpu")


@pytest.mark.parametrize("registers", [0, 3])
def test_dinov2_readout_concatenates_class_token_and_mean(tmp_path, registers):
    model, inspector = dinov2_case(tmp_path, registers)
    trace = inspector.trace(noise())
    kept = {}
    base = next(module for name, module in model.named_children() if name != "classifier")
    base.layernorm.register_forward_hook(
        lambda module, args, output: (output.retain_grad(), kept.update(last=output))[0]
    )
    logits = model(prepare(open_image(noise()), inspector.preprocessing).tensor[None]).logits
    torch.testing.assert_close(trace.logits, logits[0].detach(), atol=1e-4, rtol=0)
    logits[0, 3].backward()
    token_gradients, head = kept["last"].grad[0].double(), model.classifier.weight[3].detach().double()
    # of the left half of the features, and of the right half
    parts = torch.stack([token_gradients / head[:64], token_gradients / head[64:]])
    expected = torch.zeros(trace.grid.tokens, dtype=torch.float64)
    expected[0] = parts[0, 0].mean() / 2  # each half has half of the weight
    expected[1:] = parts[1, 1:].mean(dim=1) / 2
    assert (
        trace.pool == "class and average"
        and trace.readout.joined == "side by side"
        and trace.readout.norm == "before"
    )
    torch.testing.assert_close(query_weights(trace), expected, atol=1e-5, rtol=0)
    assert not torch.allclose(rollout(trace), rollout(trace, "class"), atol=1e-3)
    assert RolloutView().summary(ViewContext(inspector, trace))["auto"] == "class token and mean over patches"
