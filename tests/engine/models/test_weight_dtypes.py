"""Weights must be floating-point numbers. Index tables are not weights."""

import pytest
import torch
from safetensors.torch import save_file

from tests.engine.small_models import save_model, small_vit
from vitviz.engine.adapters.load import load, require_real
from vitviz.engine.hub.catalogue import find_checkpoint
from vitviz.errors import CheckpointError

WEIGHTS = ["head.weight", "blocks.1.attn.qkv.weight", "pos_embed", "cls_token", "norm.bias"]


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.int64, torch.bool, torch.complex64], ids=str
)
@pytest.mark.parametrize("name", WEIGHTS)
def test_non_float_weights_are_rejected(tmp_path, name, dtype):
    tensors = {key: value.contiguous() for key, value in small_vit().state_dict().items()}
    tensors[name] = (tensors[name] * 50).to(dtype)
    save_file(tensors, tmp_path / "some.safetensors")
    with pytest.raises(
        CheckpointError,
        match=rf"some\S* stores {name} as {str(dtype).removeprefix('torch.')} numbers.*floating point",
    ):
        load(find_checkpoint(str(tmp_path / "some.safetensors")))


def test_rejected_weights_are_counted(tmp_path):
    torch.save(
        {key: value.to(torch.int16) for key, value in small_vit().state_dict().items()}, tmp_path / "some.pth"
    )
    with pytest.raises(CheckpointError, match=r"\(and \d+ more\) as int16"):
        load(find_checkpoint(str(tmp_path / "some.pth")))


def test_half_precision_and_index_tables_are_accepted(tmp_path):
    beit = small_vit("beit_base_patch16_224", img_size=32)
    tensors = {key: value.contiguous().half() for key, value in beit.state_dict().items()}
    table = "blocks.0.attn.relative_position_index"
    tensors[table] = torch.zeros(17, 17, dtype=torch.int64)
    require_real(tensors, "BEiT")
    with pytest.raises(CheckpointError, match="as complex64 numbers"):
        require_real({"some.index": torch.zeros(3, dtype=torch.complex64)}, "Some")
    loaded = load(find_checkpoint(str(save_model(small_vit().half(), tmp_path / "half.safetensors"))))
    assert all(parameter.dtype == torch.float32 for parameter in loaded.model.parameters())
