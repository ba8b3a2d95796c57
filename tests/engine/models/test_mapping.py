"""Mapping files for custom tensor names, with stacks and transposes, and proposed mappings."""

import json
import warnings

import pytest
import torch
from safetensors.torch import save_file

import vitviz
from tests.engine.models.custom_vits import CustomViT, SeparateHeads, SeparateMatrices, TorchAttention
from tests.engine.small_models import perturbed, small_vit
from vitviz.engine.adapters.proposal import propose_mapping
from vitviz.engine.formats.mapping import NameMap, mapping_file, parse_mapping, to_toml
from vitviz.errors import CheckpointError

STATED = {"heads": 4, "mean": 0.5, "std": 0.5, "epsilon": 1e-5, "device": "cpu"}


def save_state(model, folder, name="mine.safetensors"):
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, folder / name)
    return folder / name


def output_of(model, noise):
    with torch.no_grad():
        output = model(noise)
    return output[0] if isinstance(output, tuple) else output


def assert_same_output(inspector, model):
    noise = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(
        output_of(inspector.model, noise), output_of(model, noise), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize("attention", [SeparateHeads, SeparateMatrices, TorchAttention])
def test_proposed_mapping_loads_custom_names(tmp_path, attention):
    model = perturbed(CustomViT(attention))
    with pytest.warns(vitviz.AssumedWarning, match="the names of its tensors"):
        inspector = vitviz.load(save_state(model, tmp_path), **STATED)
    assert_same_output(inspector, model)
    assert "mapping" in [assumption.name for assumption in inspector.checkpoint.assumed]


def test_proposed_mapping_as_file_is_not_assumed(tmp_path):
    model = perturbed(CustomViT(SeparateMatrices))
    path = save_state(model, tmp_path)
    mapping_file(path).write_text(to_toml(propose_mapping(model.state_dict()).mapping))
    with warnings.catch_warnings():
        warnings.simplefilter("error", vitviz.AssumedWarning)
        stated = {"crop_pct": 1.0, "interpolation": "bicubic", "activation": "gelu", "pool": "class"}
        inspector = vitviz.load(path, **STATED, **stated, block="pre-norm")
    assert_same_output(inspector, model)
    assert inspector.checkpoint.assumed == () and "mine.toml" in inspector.checkpoint.note


def test_mapping_file_may_state_model_properties():
    stated = {"heads": 3, "epsilon": 1e-5, "activation": "quick_gelu"}
    overrides = parse_mapping(
        '[model]\nheads = 3\nepsilon = 1e-5\nactivation = "quick_gelu"\n', "mine.toml"
    ).given
    assert {name: getattr(overrides, name) for name in stated} == stated


def test_transposed_matrices_are_detected_or_stated(tmp_path):
    model = perturbed(CustomViT(SeparateMatrices))
    tensors = {
        key: value.T.contiguous() if value.ndim == 2 and "encoder" in key else value
        for key, value in model.state_dict().items()
    }
    proposed = propose_mapping(tensors).mapping
    # both MLP matrices, whose biases show it; square matrices show nothing
    assert len(proposed.transpose) == 2
    save_file(tensors, tmp_path / "mine.safetensors")
    square = "".join(
        f'"encoder.layers.{{layer}}.attention.{name}.weight", ' for name in ("wq", "wk", "wv", "wo")
    )
    text = to_toml(proposed).replace("transpose = [", f"transpose = [{square}")
    (tmp_path / "mine.toml").write_text(text)
    assert_same_output(vitviz.load(tmp_path / "mine.safetensors", **STATED), model)


def test_mapping_file_states_patch_order(tmp_path):
    model = perturbed(CustomViT(SeparateMatrices, flat=True))
    path = save_state(model, tmp_path)
    with pytest.raises(CheckpointError, match="patch_order"):
        vitviz.load(path, **STATED)
    lines = '[model]\nheads = 4\nepsilon = 1e-5\npatch_order = "row col channel"\n'
    (tmp_path / "mine.toml").write_text(to_toml(propose_mapping(model.state_dict()).mapping) + "\n" + lines)
    assert_same_output(vitviz.load(path, mean=0.5, std=0.5, device="cpu"), model)


def test_unrecognised_names_require_mapping(tmp_path):
    tensors = {
        key.replace("wq", "a").replace("wk", "b").replace("wv", "c"): value
        for key, value in CustomViT(SeparateMatrices).state_dict().items()
    }
    proposal = propose_mapping(tensors)
    assert not proposal.complete and any(".a.weight (48, 48)" in line for line in proposal.open)
    save_file(tensors, tmp_path / "mine.safetensors")
    with pytest.raises(CheckpointError, match=r"(?s)attention\.a\.weight.*mine\.toml.*\[names\]"):
        vitviz.load(tmp_path / "mine.safetensors", **STATED)


def test_timm_patch_embedding_name_does_not_prevent_mapping(tmp_path):
    model = perturbed(CustomViT(SeparateMatrices))
    renamed = {
        key.replace("embedding.patch_embeddings", "patch_embed.proj"): value.contiguous()
        for key, value in model.state_dict().items()
    }
    save_file(renamed, tmp_path / "mine.safetensors")
    with pytest.warns(vitviz.AssumedWarning, match="the names of its tensors"):
        assert_same_output(vitviz.load(tmp_path / "mine.safetensors", **STATED), model)
    unmapped = {key.replace("wq", "a").replace("wk", "b"): value for key, value in renamed.items()}
    save_file(unmapped, tmp_path / "lost.safetensors")
    with pytest.raises(CheckpointError, match=r"(?s)ambiguous.*lost\.toml.*\[names\]"):
        vitviz.load(tmp_path / "lost.safetensors", **STATED)


def test_mapping_survives_conversion_to_toml():
    mapping = NameMap({'a".*': "b.*"}, {"c": ("d", "e")}, ("f",), ("g",), {"heads": 3, "epsilon": 1e-5})
    parsed = parse_mapping(to_toml(mapping), "x.toml")
    assert parsed.names == mapping.names and parsed.model == mapping.model
    assert {key: tuple(value) for key, value in parsed.stack.items()} == mapping.stack


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[names", "not valid TOML"),
        ("[nomes]\n", "'nomes'"),
        ("[model]\nwidth = 3\n", "'width'"),
        ("[stack]\na = 1\n", "names in quotes"),
        ("names = 3\n", "'names'"),
        ('[names]\n"cls" = 4\n', "names in quotes"),
        ("[model]\nheads = 'many'\n", "heads="),
        ('[names]\n"*" = "pos_embed"\n', "of both"),
        ('[names]\n"embedding.*" = "*"\n"*" = "*"\n', "names it twice"),
        ('[stack]\n"x" = ["classifier.weight", "classifier.other"]\n', "does not name it"),
    ],
)
def test_invalid_mapping_is_rejected_with_reason(tmp_path, text, message):
    path = save_state(CustomViT(SeparateMatrices), tmp_path)
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ValueError, match=message) as raised:
        vitviz.load(path, **STATED)
    assert isinstance(raised.value, vitviz.VitvizError)


def test_mapping_and_config_are_combined(tmp_path):
    model = small_vit()
    save_file(
        {f"net.{key}": value.contiguous() for key, value in model.state_dict().items()},
        tmp_path / "m.safetensors",
    )
    (tmp_path / "m.toml").write_text('[names]\n"net.*" = "*"\n')
    args = {"img_size": 32, "patch_size": 8, "embed_dim": 128, "depth": 2, "num_heads": 2}
    config = {"architecture": "vit_tiny_patch16_224", "num_classes": 7, "model_args": args}
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert_same_output(vitviz.load(tmp_path, device="cpu"), model)


def test_timm_token_and_position_names_are_mapped(tmp_path):
    """Most authors use `cls_token` and `pos_embed`, whatever the other names are."""
    timms = {"embedding.cls_token": "cls_token", "embedding.position_embeddings": "pos_embed"}
    tensors = {timms.get(key, key): value for key, value in CustomViT(SeparateMatrices).state_dict().items()}
    assert set(timms.values()) <= set(tensors)
    save_file({key: value.contiguous() for key, value in tensors.items()}, tmp_path / "mine.safetensors")
    with pytest.warns(vitviz.AssumedWarning, match="the names of its tensors"):
        vitviz.load(tmp_path / "mine.safetensors", **STATED)


@pytest.mark.parametrize(
    "name", ["*" * 3_000, "*a" * 300, "a.{__class__}.b", "a.{", "b}", "{0}", "{layer!r}"]
)
@pytest.mark.parametrize(
    "line", ['[names]\n"{}" = "cls_token"\n', 'leave_out = ["{}"]\n', '[stack]\n"x" = ["{}"]\n']
)
def test_invalid_name_pattern_is_rejected(line, name):
    with pytest.raises(CheckpointError, match="at most 6 of {layer}, {head} and"):
        parse_mapping(line.replace("{}", name), "mine.toml")


def test_repeated_placeholder_must_match_same_text():
    mapping = parse_mapping('[names]\n"{layer}.a{layer}" = "blocks.{layer}.norm1.weight"\n', "mine.toml")
    tensor = torch.ones(3)
    assert "blocks.2.norm1.weight" in mapping.translated({"2.a2": tensor}, "mine")
    with pytest.raises(CheckpointError, match="does not name it"):
        mapping.translated({"2.a3": tensor}, "mine")
