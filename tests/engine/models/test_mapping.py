"""Mapping files: a student's own names, their stacks and transposes; proposals where one possibility is
left.
"""

import json
import warnings

import pytest
import torch
from safetensors.torch import save_file

import vitviz
from tests.engine.models.theirs import Apart, Heads, Scratch, Torchs
from tests.engine.small import perturbed, small
from vitviz.engine.adapters.proposal import propose_mapping
from vitviz.engine.formats.mapping import NameMap, mapping_file, parse_mapping, to_toml
from vitviz.errors import CheckpointError

SAID = {"heads": 4, "mean": 0.5, "std": 0.5, "epsilon": 1e-5, "device": "cpu"}


def kept(model, folder, name="mine.safetensors"):
    save_file({key: value.contiguous() for key, value in model.state_dict().items()}, folder / name)
    return folder / name


def answers(model, noise):
    with torch.no_grad():
        found = model(noise)
    return found[0] if isinstance(found, tuple) else found


def same(inspector, model):
    noise = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(5))
    torch.testing.assert_close(answers(inspector.model, noise), answers(model, noise), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("attention", [Heads, Apart, Torchs])
def test_a_file_of_ones_own_names_is_read_by_what_is_proposed(tmp_path, attention):
    model = perturbed(Scratch(attention))
    with pytest.warns(vitviz.AssumedWarning, match="what its tensors are"):
        inspector = vitviz.load(kept(model, tmp_path), **SAID)
    same(inspector, model)
    assert "mapping" in [one.name for one in inspector.checkpoint.assumed]


def test_what_is_proposed_becomes_a_file_and_is_assumed_no_more(tmp_path):
    model = perturbed(Scratch(Apart))
    path = kept(model, tmp_path)
    mapping_file(path).write_text(to_toml(propose_mapping(model.state_dict()).mapping))
    with warnings.catch_warnings():
        warnings.simplefilter("error", vitviz.AssumedWarning)
        told = {"crop_pct": 1.0, "interpolation": "bicubic", "activation": "gelu", "pool": "class"}
        inspector = vitviz.load(path, **SAID, **told, block="pre-norm")
    same(inspector, model)
    assert inspector.checkpoint.assumed == () and "mine.toml" in inspector.checkpoint.note


def test_what_tensors_do_not_tell_may_stand_in_the_file():
    said = {"heads": 3, "epsilon": 1e-5, "activation": "quick_gelu"}
    found = parse_mapping(
        '[model]\nheads = 3\nepsilon = 1e-5\nactivation = "quick_gelu"\n', "mine.toml"
    ).given
    assert {name: getattr(found, name) for name in said} == said


def test_matrices_saved_the_other_way_round_are_turned(tmp_path):
    model = perturbed(Scratch(Apart))
    tensors = {
        key: value.T.contiguous() if value.ndim == 2 and "encoder" in key else value
        for key, value in model.state_dict().items()
    }
    found = propose_mapping(tensors).mapping
    assert len(found.transpose) == 2  # both of the MLP: their biases tell; square ones tell nothing
    save_file(tensors, tmp_path / "mine.safetensors")
    square = "".join(
        f'"encoder.layers.{{layer}}.attention.{one}.weight", ' for one in ("wq", "wk", "wv", "wo")
    )
    told = to_toml(found).replace("transpose = [", f"transpose = [{square}")
    (tmp_path / "mine.toml").write_text(told)
    same(vitviz.load(tmp_path / "mine.safetensors", **SAID), model)


def test_a_mapping_says_what_tensors_do_not(tmp_path):
    model = perturbed(Scratch(Apart, flat=True))
    path = kept(model, tmp_path)
    with pytest.raises(CheckpointError, match="patch_order"):
        vitviz.load(path, **SAID)
    lines = '[model]\nheads = 4\nepsilon = 1e-5\npatch_order = "row col channel"\n'
    (tmp_path / "mine.toml").write_text(to_toml(propose_mapping(model.state_dict()).mapping) + "\n" + lines)
    same(vitviz.load(path, mean=0.5, std=0.5, device="cpu"), model)


def test_names_that_tell_nothing_are_asked_for(tmp_path):
    tensors = {
        key.replace("wq", "a").replace("wk", "b").replace("wv", "c"): value
        for key, value in Scratch(Apart).state_dict().items()
    }
    found = propose_mapping(tensors)
    assert not found.complete and any(".a.weight (48, 48)" in one for one in found.open)
    save_file(tensors, tmp_path / "mine.safetensors")
    with pytest.raises(CheckpointError, match=r"(?s)attention\.a\.weight.*mine\.toml.*\[names\]"):
        vitviz.load(tmp_path / "mine.safetensors", **SAID)


def test_a_patch_embedding_called_as_timms_does_not_hide_that_a_mapping_helps(tmp_path):
    model = perturbed(Scratch(Apart))
    renamed = {
        key.replace("embedding.patch_embeddings", "patch_embed.proj"): value.contiguous()
        for key, value in model.state_dict().items()
    }
    save_file(renamed, tmp_path / "mine.safetensors")
    with pytest.warns(vitviz.AssumedWarning, match="what its tensors are"):
        same(vitviz.load(tmp_path / "mine.safetensors", **SAID), model)
    lost = {key.replace("wq", "a").replace("wk", "b"): value for key, value in renamed.items()}
    save_file(lost, tmp_path / "lost.safetensors")
    with pytest.raises(CheckpointError, match=r"(?s)more than one possibility.*lost\.toml.*\[names\]"):
        vitviz.load(tmp_path / "lost.safetensors", **SAID)


def test_the_text_of_a_mapping_is_read_as_it_was_written():
    mapping = NameMap({'a".*': "b.*"}, {"c": ("d", "e")}, ("f",), ("g",), {"heads": 3, "epsilon": 1e-5})
    again = parse_mapping(to_toml(mapping), "x.toml")
    assert again.names == mapping.names and again.model == mapping.model
    assert {key: tuple(value) for key, value in again.stack.items()} == mapping.stack


@pytest.mark.parametrize(
    ("text", "says"),
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
def test_a_mapping_that_cannot_be_followed_says_why(tmp_path, text, says):
    path = kept(Scratch(Apart), tmp_path)
    (tmp_path / "mine.toml").write_text(text)
    with pytest.raises(ValueError, match=says) as raised:
        vitviz.load(path, **SAID)
    assert isinstance(raised.value, vitviz.VitvizError)


def test_a_mapping_and_a_config_go_together(tmp_path):
    model = small()
    save_file(
        {f"net.{key}": value.contiguous() for key, value in model.state_dict().items()},
        tmp_path / "m.safetensors",
    )
    (tmp_path / "m.toml").write_text('[names]\n"net.*" = "*"\n')
    args = {"img_size": 32, "patch_size": 8, "embed_dim": 128, "depth": 2, "num_heads": 2}
    config = {"architecture": "vit_tiny_patch16_224", "num_classes": 7, "model_args": args}
    (tmp_path / "config.json").write_text(json.dumps(config))
    same(vitviz.load(tmp_path, device="cpu"), model)


def test_tokens_and_positions_may_be_called_as_timms(tmp_path):
    """`cls_token` and `pos_embed` are what most write by themselves, whatever the rest is called."""
    timms = {"embedding.cls_token": "cls_token", "embedding.position_embeddings": "pos_embed"}
    tensors = {timms.get(key, key): value for key, value in Scratch(Apart).state_dict().items()}
    assert set(timms.values()) <= set(tensors)
    save_file({key: value.contiguous() for key, value in tensors.items()}, tmp_path / "mine.safetensors")
    with pytest.warns(vitviz.AssumedWarning, match="what its tensors are"):
        vitviz.load(tmp_path / "mine.safetensors", **SAID)


@pytest.mark.parametrize(
    "name", ["*" * 3_000, "*a" * 300, "a.{__class__}.b", "a.{", "b}", "{0}", "{layer!r}"]
)
@pytest.mark.parametrize(
    "line", ['[names]\n"{}" = "cls_token"\n', 'leave_out = ["{}"]\n', '[stack]\n"x" = ["{}"]\n']
)
def test_a_name_that_is_no_pattern_is_refused_with_what_may_stand_in_one(line, name):
    with pytest.raises(CheckpointError, match="at most 6 of {layer}, {head} and"):
        parse_mapping(line.replace("{}", name), "mine.toml")


def test_a_placeholder_that_stands_twice_stands_for_the_same():
    mapping = parse_mapping('[names]\n"{layer}.a{layer}" = "blocks.{layer}.norm1.weight"\n', "mine.toml")
    one = torch.ones(3)
    assert "blocks.2.norm1.weight" in mapping.translated({"2.a2": one}, "mine")
    with pytest.raises(CheckpointError, match="does not name it"):
        mapping.translated({"2.a3": one}, "mine")
