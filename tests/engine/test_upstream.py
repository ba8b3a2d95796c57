"""Who wrote what a head reads: every line against models that are run again without that writer, all else
held, and against genuine weights by a path of its own.
"""

import dataclasses

import pytest
import torch
from safetensors.torch import load_file
from torch.overrides import TorchFunctionMode

import vitviz
from tests.engine.accounts import CONSTRUCTIONS, QUICK, pixels_for
from tests.engine.helpers import MORE, WEIGHTS, terms_and_stream
from tests.shared import shared_file
from tests.tiers import sweep
from vitviz.analyses.effects import SIDES
from vitviz.analyses.logit_account import attribution_of
from vitviz.analyses.paths import largest_paths
from vitviz.analyses.upstream import Writer, attribute_score, upstream_of
from vitviz.engine.forward.edges import logits_without_edges
from vitviz.engine.forward.shuffling import input_from_view
from vitviz.engine.studies import circuits

EXACT = 1e-11


class Run(TorchFunctionMode):
    """The model with deviations, attention, MLPs and what heads handed on as they were; one head alone reads
    anew, and one writer is missing. By hooks on timm's modules and none of vitviz.
    """

    def __init__(self, model, pixels):
        super().__init__()
        self.model, self.pixels, self.number = model, pixels, 0
        self.inputs, self.outputs, self.calls = {}, {}, []
        self.anew, self.gone = None, None
        names = ("norm1", "in_norm", "norm", "fc_norm", "norm_pre")
        self.handles = [
            one.register_forward_hook(self.norm)
            for path, one in model.named_modules()
            if path.split(".")[-1] in names and len(list(one.parameters(recurse=False)))
        ]
        for layer, block in enumerate(model.blocks):
            mlp = getattr(block, "mlp_out_proj", None) or block.drop_path2
            self.handles.append(
                mlp.register_forward_hook(lambda _, a, o, at=layer: self.fixed(("mlp", at), o))
            )
            gate = getattr(getattr(block, "attn", None), "gate", None)
            if gate is not None:
                self.handles.append(
                    gate.register_forward_hook(lambda _, a, o, at=layer: self.fixed(("gate", at), o))
                )
        pool = getattr(getattr(model, "attn_pool", None), "mlp", None)
        if pool is not None:
            self.handles.append(pool.register_forward_hook(lambda _, a, o: self.fixed("pool", o)))
        self.handles.append(model.patch_embed.register_forward_hook(self.embedded))
        self.first = True
        self.whole = self()
        self.first = False

    def __call__(self):
        self.number = 0
        with torch.no_grad(), self:
            return self.model(self.pixels)[0]

    def without(self, writer, anew):
        """The logits without a writer, with nothing but the value input of the head `anew` reading that."""
        self.anew, self.gone = anew, writer
        if writer[0] == "positions":
            table = self.model.pos_embed.detach().clone()
            with torch.no_grad():
                self.model.pos_embed.zero_()
            found = self()
            with torch.no_grad():
                self.model.pos_embed.copy_(table)
            return found
        return self()

    def fixed(self, name, output):
        if self.first:
            self.outputs[name] = output
        return torch.zeros_like(output) if name == self.gone else self.outputs[name]

    def embedded(self, module, args, output):
        if self.gone == ("embedding",):
            return torch.zeros_like(output)
        return None

    def norm(self, module, args, output):
        if self.first:
            self.inputs[module] = args[0]
            return None
        before, x = self.inputs[module], args[0]
        if isinstance(module, torch.nn.LayerNorm):
            x, before = (one - one.mean(-1, keepdim=True) for one in (x, before))
        x = x / torch.sqrt(before.pow(2).mean(-1, keepdim=True) + module.eps) * module.weight
        return x if getattr(module, "bias", None) is None else x + module.bias

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is not torch.nn.functional.scaled_dot_product_attention:
            return func(*args, **(kwargs or {}))
        q, k, v = args[:3]
        number, mask = self.number, (kwargs or {}).get("attn_mask")
        self.number += 1
        if self.first:
            scores = q @ k.mT * ((kwargs or {}).get("scale") or q.shape[-1] ** -0.5)
            self.calls.append((torch.softmax(scores if mask is None else scores + mask, -1), v))
        weights, held = self.calls[number]
        if number == len(self.model.blocks):  # attention pooling reads what there is
            return weights @ v
        handed = weights @ held
        if self.anew is not None and number == self.anew[0]:
            handed[:, self.anew[1]] = (weights @ v)[:, self.anew[1]]
        if self.gone == ("head", number):
            handed[:, 1] = 0
        return handed


@sweep("construction", [*CONSTRUCTIONS, *MORE], quick=QUICK)
def test_a_line_is_what_the_held_model_loses_without_that_writer(construction):
    model, ledger, stream, basis = terms_and_stream(construction)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found = upstream_of(ledger, stream, basis, 2, 1)
    largest = max(abs(part) for _, part in found.lines())
    assert abs(found.gap) < EXACT * largest and largest > 1e-9
    assert found.share == pytest.approx(attribution_of(ledger, 1).heads[2, 1].item(), abs=EXACT)
    run = Run(model, pixels_for(model))
    torch.testing.assert_close(run.whole, ledger.trace.logits)

    def through(*writer):
        return (run.without(writer, None) - run.without(writer, (2, 1)))[1].item()

    for layer in (0, 1):
        assert found.heads[layer, 1].item() == pytest.approx(through("head", layer), abs=EXACT)
        assert found.mlps[layer].item() == pytest.approx(through("mlp", layer), abs=EXACT)
    if getattr(model, "pos_embed", None) is not None:
        assert found.positions == pytest.approx(through("positions"), abs=EXACT)
    else:
        assert found.positions is None
    if ledger.trace.grid.prefix == 0:
        assert found.embedding == pytest.approx(through("embedding"), abs=EXACT)
    patches = found.by_token.embedding[ledger.trace.grid.prefix :].sum().item()
    assert patches == pytest.approx(through("embedding"), abs=EXACT)
    assert found.heads[2].isnan().all() and found.mlps[2].isnan() and found.heads[:2].isfinite().all()
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    run_hooks = len(run.handles)
    assert (
        sum(len(one._forward_hooks) for one in model.modules()) == run_hooks
    )  # ours alone, none of vitviz's


@sweep("construction", [*CONSTRUCTIONS, *MORE], quick=QUICK)
def test_scores_and_paths_of_every_construction_add_up(construction):
    _, ledger, stream, basis = terms_and_stream(construction)
    attention = ledger.trace.layers[2]
    scores = attention.q[1] @ attention.k[1].mT * attention.scale
    whole = scores if attention.bias is None else scores + attention.bias.rows(heads=slice(1, 2))[0]
    found = attribute_score(ledger, stream, 2, 1, 3, 5)
    assert found.total == pytest.approx(whole[3, 5].item(), abs=EXACT) and abs(found.gap) < EXACT
    relative = found.relative.sum().item() + found.relative_rest
    assert relative == pytest.approx((whole[3, 5] - whole[3].mean()).item(), abs=EXACT)
    other = attribute_score(ledger, stream, 2, 1, 3, 5, against=2)
    relative = other.relative.sum().item() + other.relative_rest
    assert relative == pytest.approx((whole[3, 5] - whole[3, 2]).item(), abs=EXACT)
    torch.testing.assert_close(other.matrix, found.matrix)
    four = found.content_position
    assert (four is None) == (stream.positions is None)
    if four is not None:
        assert four.sum().item() == pytest.approx(found.relative.sum().item(), abs=EXACT)
    deep = upstream_of(ledger, stream, basis, 1, 2, via=[(2, 1)])
    line = upstream_of(ledger, stream, basis, 2, 1).heads[1, 2].item()
    assert deep.share == pytest.approx(line, abs=EXACT) and abs(deep.gap) < EXACT
    heads = attribution_of(ledger, 1).heads
    everything = largest_paths(ledger, stream, basis, heads, 10**6, 10**6)
    assert everything.total == pytest.approx(heads.sum().item(), abs=EXACT)
    assert abs(everything.left_out) < EXACT and all(path.writer is not None for path in everything.paths)
    assert len({(path.heads, path.writer) for path in everything.paths}) == len(everything.paths)
    assert everything.proven and everything.bound == 0 and everything.opened == 63
    for path in (*everything.paths[:4], *everything.paths[-4:]):
        lines = upstream_of(ledger, stream, basis, *path.heads[-1], path.heads[:-1]).lines()
        assert path.share == pytest.approx(dict(lines)[path.writer], abs=EXACT)
    few = largest_paths(ledger, stream, basis, heads, 5)
    assert few.proven and few.paths == everything.paths[:5]
    assert few.bound >= abs(everything.paths[5].share) - EXACT
    for opened in (0, 20):  # a search that ends early says what it cannot exclude
        few = largest_paths(ledger, stream, basis, heads, 5, opened)
        assert few.opened == max(opened, 9) or few.proven  # every head once
        listed = {(path.heads, path.writer) for path in few.paths}
        others = [path.share for path in everything.paths if (path.heads, path.writer) not in listed]
        assert few.bound >= max(map(abs, others)) - EXACT
        assert few.left_out == pytest.approx(few.total - sum(path.share for path in few.paths), abs=EXACT)


def test_a_wrong_line_is_no_remainder_of_another():
    """What an MLP wrote is recorded; a difference of residuals would take up any error."""
    _, ledger, stream, basis = terms_and_stream("class")
    spoiled = dataclasses.replace(stream, mlps=(stream.mlps[0] * 1.01, *stream.mlps[1:]))
    found = upstream_of(ledger, spoiled, basis, 2, 1)
    assert abs(found.gap) > 1e-4 * max(abs(part) for _, part in found.lines())
    with pytest.raises(vitviz.VitvizError, match="explained by its writers only to"):
        circuits._check_sum(found, ledger.trace)


@pytest.fixture(scope="module")
def genuine():
    inspector = vitviz.load(shared_file(WEIGHTS), architecture="deit_tiny_patch16_224", device="cpu")
    return inspector, inspector.trace(shared_file("data/both.png"))


def test_genuine_weights_by_a_path_of_its_own(genuine):
    """DeiT-Tiny, head 2 of block 10 for bull mastiff: everything written out in float64."""
    inspector, trace = genuine
    w = {name: value.double() for name, value in load_file(shared_file(WEIGHTS)).items()}

    def normed(x, name, whole=None):
        whole = x if whole is None else whole
        deviation = torch.sqrt(whole.var(-1, unbiased=False, keepdim=True) + 1e-6)
        return (x - x.mean(-1, keepdim=True)) / deviation * w[f"{name}.weight"]

    x = trace.tokens[0].double()
    written = {"positions": w["pos_embed"][0], "embedding": x - w["pos_embed"][0]}
    layer, head, query, key = 9, 1, 0, 60
    for at in range(layer + 1):
        p = f"blocks.{at}."
        qkv = (normed(x, p + "norm1") + w[p + "norm1.bias"]) @ w[p + "attn.qkv.weight"].T + w[
            p + "attn.qkv.bias"
        ]
        q, k, v = qkv.reshape(197, 3, 3, 64).permute(1, 2, 0, 3)
        attention = torch.softmax(q @ k.transpose(1, 2) / 8, dim=-1)
        if at == layer:
            break
        for h in range(3):
            written[at, h] = attention[h] @ v[h] @ w[p + "attn.proj.weight"][:, 64 * h : 64 * h + 64].T
            x = x + written[at, h]
        written["bias", at] = w[p + "attn.proj.bias"].expand(197, -1)
        x = x + written["bias", at]
        hidden = (normed(x, p + "norm2") + w[p + "norm2.bias"]) @ w[p + "mlp.fc1.weight"].T + w[
            p + "mlp.fc1.bias"
        ]
        hidden = hidden * 0.5 * (1 + torch.erf(hidden / 2**0.5))
        written["mlp", at] = hidden @ w[p + "mlp.fc2.weight"].T + w[p + "mlp.fc2.bias"]
        x = x + written["mlp", at]
    last = trace.tokens[-1].double()[0]
    row = w["head.weight"][243] * w["norm.weight"] / torch.sqrt(last.var(unbiased=False) + 1e-6)
    wq, wk, wv = w[p + "attn.qkv.weight"].reshape(3, 3, 64, 192)[:, head]
    out = w[p + "attn.proj.weight"][:, 64 * head : 64 * head + 64]
    along = (row - row.mean()) @ out @ wv  # at the normed tokens
    by_token = {
        name: attention[head, 0] * (normed(one, p + "norm1", x) @ along) for name, one in written.items()
    }
    found = vitviz.upstream_contributions(inspector, trace, 243, layer, head)
    assert found.share == pytest.approx(2.03, abs=0.01)
    largest = max(abs(part) for _, part in found.lines())
    assert abs(found.gap) < 1e-5 * largest
    near = {"atol": 2e-5, "rtol": 1e-4}
    for name in ("positions", "embedding"):
        torch.testing.assert_close(getattr(found.by_token, name).double(), by_token[name], **near)
    for at in range(layer):
        torch.testing.assert_close(found.by_token.mlps[at].double(), by_token["mlp", at], **near)
        torch.testing.assert_close(found.by_token.biases[at].double(), by_token["bias", at], **near)
        for h in range(3):
            torch.testing.assert_close(found.by_token.heads[at, h].double(), by_token[at, h], **near)
    score = vitviz.attention_score_attribution(inspector, trace, layer, head, query, key)
    assert score.score == pytest.approx((q[head, query] @ k[head, key] / 8).item(), abs=1e-4)
    assert abs(score.gap) < 1e-5 * score.matrix.abs().max()
    asked, told = (normed(torch.stack([*written.values()]), p + "norm1", x) @ one.T for one in (wq, wk))
    names = [
        ("positions" if one.kind == "positions" else one.kind) if one.layer is None
        else (one.layer, one.head) if one.kind == "head" else (one.kind, one.layer)
        for one in score.writers
    ]  # fmt: skip
    order = torch.tensor([names.index(name) for name in written])
    expected = asked[:, query] @ told[:, key].T / 8
    torch.testing.assert_close(score.matrix[order][:, order], expected, atol=1e-4, rtol=1e-4)
    expected = asked[:, query] @ (told[:, key] - told.mean(dim=1)).T / 8
    torch.testing.assert_close(score.relative[order][:, order], expected, atol=1e-4, rtol=1e-4)


def test_what_is_asked_in_vain_is_told(genuine):
    inspector, trace = genuine
    for given, sentence in [
        ({"layer": 12, "head": 0}, "layers 0 to 11"), ({"layer": 3, "head": 3}, "heads 0 to 2"),
        ({"layer": 3, "head": 1, "via": [(3, 0)]}, "each head in an earlier layer"),
    ]:  # fmt: skip
        with pytest.raises(vitviz.VitvizError, match=sentence):
            vitviz.upstream_contributions(inspector, trace, 0, **given)
    with pytest.raises(vitviz.VitvizError, match="as the key; expected a token from 0 to 196"):
        vitviz.attention_score_attribution(inspector, trace, 0, 0, 0, 197)
    first = vitviz.upstream_contributions(inspector, trace, 0, 0, 2)
    assert [one.kind for one, _ in first.lines()] == ["embedding", "positions", "constant"]
    without = vitviz.Ablation(heads=[(2, 1)], patches=[0, 5])
    other = inspector.trace(shared_file("data/both.png"), ablation=without)
    found = vitviz.upstream_contributions(inspector, other, 0, 6, 2)
    assert abs(found.gap) < 1e-5 and found.by_token.mlps[0].isnan().sum() == 2
    with pytest.raises(vitviz.VitvizError, match="was replaced"):
        vitviz.upstream_contributions(inspector, other, 0, 2, 1)


def everything(layer, heads, positions=True):
    found = [Writer("embedding"), *([Writer("positions")] if positions else [])]
    for at in range(layer):
        found += [Writer("head", at, head) for head in range(heads)] + [Writer("bias", at), Writer("mlp", at)]
    return found


@pytest.mark.parametrize(
    "construction",
    ["registers", "average, then norm", "norm before the projection", "attention pooling", "RMSNorm, SwiGLU"]
    + ["norms of queries and keys", "rotary", "relative positions"],
)
def test_edges_taken_out_by_passes(construction):
    model, ledger, stream, _ = terms_and_stream(construction)
    pixels, before = pixels_for(model), {name: one.clone() for name, one in model.state_dict().items()}

    def hooked(module, change, pre=False):
        handle = (module.register_forward_pre_hook if pre else module.register_forward_hook)(change)
        with torch.no_grad():
            found = model(pixels)[0]
        handle.remove()
        return found

    # a writer taken out of all its readers at once is that writer taken away whole
    readers = [(side, at, head) for side in SIDES for at in (1, 2) for head in range(3)]
    readers += [("mlp", 0), ("mlp", 1), ("mlp", 2), ("readout",)]
    attention = model.blocks[0].attn
    if stream.inner:  # what the norm over all heads holds is the pass's own
        deviation = stream.inner[0]

        def zeroed(module, args):
            return None

        before_norm = {}
        keep = attention.norm.register_forward_pre_hook(lambda m, a: before_norm.update(x=a[0].clone()))
        whole = hooked(attention.proj, lambda m, a: None, pre=True)
        keep.remove()
        part = before_norm["x"].clone()
        part[..., :8] = part[..., 16:] = 0
        part = (part - part.mean(-1, keepdim=True)) / deviation[None, :, None] * attention.norm.weight
        gone = part @ attention.proj.weight.T
        expected = hooked(attention.proj, lambda m, a, o: o - gone)
        del whole, zeroed
    else:

        def one_head(module, args):
            handed = args[0].clone()
            handed[..., 8:16] = 0
            return (handed,)

        expected = hooked(attention.proj, one_head, pre=True)
    (found,) = logits_without_edges(
        model, pixels, ledger, stream, [{one: [Writer("head", 0, 1)] for one in readers}]
    )
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
    # an MLP likewise
    expected = hooked(model.blocks[0].mlp, lambda m, a, o: torch.zeros_like(o))
    later = [one for one in readers if one != ("mlp", 0)]
    (found,) = logits_without_edges(
        model, pixels, ledger, stream, [{one: [Writer("mlp", 0)] for one in later}]
    )
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
    # all writers taken out of one head's value input: that input is zero
    block = model.blocks[2]
    writers = everything(2, 3, stream.positions is not None)
    (found,) = logits_without_edges(model, pixels, ledger, stream, [{("value", 2, 1): writers}])
    bias = block.norm1.bias if getattr(block.norm1, "bias", None) is not None else torch.zeros(24).double()
    values = getattr(block.attn, "qkv", None)

    def emptied(module, args, output):
        output = output.clone()
        rows = slice(48 + 8, 48 + 16)
        kept = module.bias[rows] if module.bias is not None else 0
        output[..., rows] = module.weight[rows] @ bias + kept
        return output

    if isinstance(values, torch.nn.Linear) and getattr(block.attn, "v_bias", None) is None:
        torch.testing.assert_close(found, hooked(values, emptied), atol=1e-10, rtol=0)
    # nothing taken out: the model's own answer, and nothing of the model is changed
    torch.testing.assert_close(
        logits_without_edges(model, pixels, ledger, stream, [{}, {}])[1], ledger.trace.logits
    )
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())


@pytest.mark.long
def test_twenty_edges_of_genuine_weights_against_hooks(genuine):
    inspector, trace = genuine
    found = vitviz.edge_ablation(inspector, trace, 243, 9, 1, parts_as="zero", count=20, seed=1)
    assert len(found.edges) == 20 and found.of == 2 + 9 * 4 and -1 <= found.correlation <= 1
    mean = vitviz.edge_ablation(inspector, trace, 243, 9, 1, batch=1, progress=lambda done, of: False)
    assert mean.of == 1 + 9 * 4 and all(one.writer.kind != "positions" for one in mean.edges)
    model = inspector.model
    pixels = inspector.forward.pixels([input_from_view(trace.view, inspector.preprocessing)])
    kept, handles = {}, []
    for layer, block in enumerate(model.blocks):
        handles.append(
            block.register_forward_pre_hook(lambda m, a, at=layer: kept.update({("in", at): a[0]}))
        )
        handles.append(
            block.mlp.register_forward_hook(lambda m, a, o, at=layer: kept.update({("mlp", at): o}))
        )
        handles.append(
            block.attn.proj.register_forward_pre_hook(lambda m, a, at=layer: kept.update({("z", at): a[0]}))
        )
    with torch.no_grad():
        whole = model(pixels)[0, 243].item()
    for handle in handles:
        handle.remove()
    block, lines = model.blocks[9], dict(vitviz.upstream_contributions(inspector, trace, 243, 9, 1).lines())
    for edge, effect, share in zip(found.edges, found.effects, found.shares, strict=True):
        kind, layer, head = edge.writer
        if kind == "head":
            some = slice(64 * head, 64 * head + 64)
            part = kept["z", layer][..., some] @ model.blocks[layer].attn.proj.weight[:, some].T
        elif kind == "mlp":
            part = kept["mlp", layer]
        else:
            part = model.pos_embed if kind == "positions" else kept["in", 0] - model.pos_embed

        def changed(module, args, output, part=part):
            other = module.weight[448:512] @ block.norm1(kept["in", 9] - part)[0].T
            output = output.clone()
            output[0, :, 448:512] = other.T + module.bias[448:512]
            return output

        with torch.no_grad():
            handle = block.attn.qkv.register_forward_hook(changed)
            lost = whole - model(pixels)[0, 243].item()
            handle.remove()
        assert effect.item() == pytest.approx(lost, abs=2e-4)
        assert share.item() == pytest.approx(lines[edge.writer])
    stopped = vitviz.edge_ablation(
        inspector, trace, (243, 282), 3, 0, into="query", batch=2, progress=lambda done, of: False
    )
    assert stopped.effects.isfinite().sum() == 2 and stopped.shares.isnan().all()
