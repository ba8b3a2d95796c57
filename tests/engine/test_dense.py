"""Maps of each patch alone against plain loops in float64, on a small CLIP by open_clip and by transformers."""

import numpy as np
import pytest
import torch

from tests.engine.accounts import CONSTRUCTIONS
from tests.engine.maps import explained
from vitviz.analyses.relevance import relevance_of
from vitviz.analyses.relevance.dense import SETTINGS, handed_on
from vitviz.errors import VitvizError

READ = [name for name in CONSTRUCTIONS if name != "class and mean"]


@pytest.mark.parametrize("construction", READ)
def test_the_last_block_with_its_own_heads_is_itself_and_alone_what_its_attention_adds(construction):
    one = explained(construction)
    own = one.trace.layers[-1].output()
    torch.testing.assert_close(one.patches(own, False), one.patches(None, False), rtol=0, atol=1e-11)
    block, model = one.model.blocks[-1], one.model
    last = getattr(block, "drop_path2", None) or block.mlp_out_proj
    silent = last.register_forward_hook(lambda *_: torch.zeros_like(_[-1]))
    rope = getattr(model, "rope", None)
    named = {} if rope is None else {"rope": rope.get_embed()}
    with torch.no_grad():
        added = block(one.trace.tokens[-2][None], **named)[0] - one.trace.tokens[-2]
        silent.remove()
        each = model.norm(added)[:, None].expand(-1, one.trace.grid.prefix + 1, -1)
        expected = model.forward_head(each)
    torch.testing.assert_close(one.patches(own, True), expected, rtol=0, atol=1e-10)
