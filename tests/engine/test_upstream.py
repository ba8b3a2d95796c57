"""Upstream contributions against models run again without one component, all else frozen, and against
genuine weights.
"""

import dataclasses

import pytest
import torch
from safetensors.torch import load_file
from timm.models.vision_transformer import VisionTransformer
from torch import nn
from torch.overrides import TorchFunctionMode

import vitviz
from tests.engine.constructions import CONSTRUCTIONS, QUICK, pixels_for
from tests.engine.small_models import perturbed
from tests.engine.upstream_cases import MORE_CONSTRUCTIONS, WEIGHTS, terms_and_stream
from tests.shared import shared_file
from tests.tiers import sweep
from vitviz.analyses.effects import SIDES
from vitviz.analyses.logit_account import attribution_of
from vitviz.analyses.paths import largest_paths
from vitviz.analyses.upstream import Writer, attribute_score, upstream_of
from vitviz.engine.forward.edges import logits_without_edges
from vitviz.engine.forward.shuffling import input_from_view
from vitviz.engine.studies import circuits
from vitviz.errors import UnsupportedModel

EXACT = 1e-11


class FrozenRun(TorchFunctionMode):
    """A model run with frozen deviations, attention, MLPs and head outputs; one head reads again, and one
    component is removed.

    The class uses hooks on timm's modules and no code of vitviz.
    """

    def __init__(self, model, pixels):
        super().__init__()
        self.model, self.pixels, self.number = model, pixels, 0
        self.inputs, self.outputs, self.calls = {}, {}, []
        self.anew, self.gone = None, None
        names = ("norm1", "in_norm", "norm", "fc_norm", "norm_pre")
        self.handles = [
            norm_module.register_forward_hook(self.norm)
            for path, norm_module in model.named_modules()
            if path.split(".")[-1] in names and len(list(norm_module.parameters(recurse=False)))
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
        """Return the logits without a component, if only the value input of head `anew` sees the removal."""
        self.anew, self.gone = anew, writer
        if writer[0] == "positions":
            table = self.model.pos_embed.detach().clone()
            with torch.no_grad():
                self.model.pos_embed.zero_()
            logits = self()
            with torch.no_grad():
                self.model.pos_embed.copy_(table)
            return logits
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
        if number == len(self.model.blocks):  # attention pooling reads the actual values
            return weights @ v
        handed = weights @ held
        if self.anew is not None and number == self.anew[0]:
            handed[:, self.anew[1]] = (weights @ v)[:, self.anew[1]]
        if self.gone == ("head", number):
            handed[:, 1] = 0
        return handed


@sweep("construction", [*CONSTRUCTIONS, *MORE_CONSTRUCTIONS], quick=QUICK)
def test_contribution_equals_logit_change_without_component(construction):
    model, ledger, stream, basis = terms_and_stream(construction)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    contributions = upstream_of(ledger, stream, basis, 2, 1)
    largest = max(abs(part) for _, part in contributions.lines())
    assert abs(contributions.gap) < EXACT * largest and largest > 1e-9
    assert contributions.share == pytest.approx(attribution_of(ledger, 1).heads[2, 1].item(), abs=EXACT)
    run = FrozenRun(model, pixels_for(model))
    torch.testing.assert_close(run.whole, ledger.trace.logits)

    def through(*writer):
        return (run.without(writer, None) - run.without(writer, (2, 1)))[1].item()

    for layer in (0, 1):
        assert contributions.heads[layer, 1].item() == pytest.approx(through("head", layer), abs=EXACT)
        assert contributions.mlps[layer].item() == pytest.approx(through("mlp", layer), abs=EXACT)
    if getattr(model, "pos_embed", None) is not None:
        assert contributions.positions == pytest.approx(through("positions"), abs=EXACT)
    else:
        assert contributions.positions is None
    if ledger.trace.grid.prefix == 0:
        assert contributions.embedding == pytest.approx(through("embedding"), abs=EXACT)
    patches = contributions.by_token.embedding[ledger.trace.grid.prefix :].sum().item()
    assert patches == pytest.approx(through("embedding"), abs=EXACT)
    assert (
        contributions.heads[2].isnan().all()
        and contributions.mlps[2].isnan()
        and contributions.heads[:2].isfinite().all()
    )
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name])
    run_hooks = len(run.handles)
    assert (
        sum(len(module._forward_hooks) for module in model.modules()) == run_hooks
    )  # hooks of this test only, none of vitviz


@sweep("construction", [*CONSTRUCTIONS, *MORE_CONSTRUCTIONS], quick=QUICK)
def test_scores_and_paths_sum_up_for_every_construction(construction):
    _, ledger, stream, basis = terms_and_stream(construction)
    attention = ledger.trace.layers[2]
    scores = attention.q[1] @ attention.k[1].mT * attention.scale
    scores_with_bias = (
        scores if attention.bias is None else scores + attention.bias.rows(heads=slice(1, 2))[0]
    )
    score = attribute_score(ledger, stream, 2, 1, 3, 5)
    assert score.total == pytest.approx(scores_with_bias[3, 5].item(), abs=EXACT) and abs(score.gap) < EXACT
    relative = score.relative.sum().item() + score.relative_rest
    assert relative == pytest.approx((scores_with_bias[3, 5] - scores_with_bias[3].mean()).item(), abs=EXACT)
    other = attribute_score(ledger, stream, 2, 1, 3, 5, against=2)
    relative = other.relative.sum().item() + other.relative_rest
    assert relative == pytest.approx((scores_with_bias[3, 5] - scores_with_bias[3, 2]).item(), abs=EXACT)
    torch.testing.assert_close(other.matrix, score.matrix)
    by_content_and_position = score.content_position
    assert (by_content_and_position is None) == (stream.positions is None)
    if by_content_and_position is not None:
        assert by_content_and_position.sum().item() == pytest.approx(score.relative.sum().item(), abs=EXACT)
    chained = upstream_of(ledger, stream, basis, 1, 2, via=[(2, 1)])
    line = upstream_of(ledger, stream, basis, 2, 1).heads[1, 2].item()
    assert chained.share == pytest.approx(line, abs=EXACT) and abs(chained.gap) < EXACT
    heads = attribution_of(ledger, 1).heads
    all_writers = largest_paths(ledger, stream, basis, heads, 10**6, 10**6)
    assert all_writers.total == pytest.approx(heads.sum().item(), abs=EXACT)
    assert abs(all_writers.left_out) < EXACT and all(path.writer is not None for path in all_writers.paths)
    assert len({(path.heads, path.writer) for path in all_writers.paths}) == len(all_writers.paths)
    assert all_writers.proven and all_writers.bound == 0 and all_writers.opened == 63
    for path in (*all_writers.paths[:4], *all_writers.paths[-4:]):
        lines = upstream_of(ledger, stream, basis, *path.heads[-1], path.heads[:-1]).lines()
        assert path.share == pytest.approx(dict(lines)[path.writer], abs=EXACT)
    shorter = largest_paths(ledger, stream, basis, heads, 5)
    assert shorter.proven and shorter.paths == all_writers.paths[:5]
    assert shorter.bound >= abs(all_writers.paths[5].share) - EXACT
    for opened in (0, 20):  # a search that ends early reports a bound
        shorter = largest_paths(ledger, stream, basis, heads, 5, opened)
        assert shorter.opened == max(opened, 9) or shorter.proven  # every head once
        listed = {(path.heads, path.writer) for path in shorter.paths}
        other_shares = [path.share for path in all_writers.paths if (path.heads, path.writer) not in listed]
        assert shorter.bound >= max(map(abs, other_shares)) - EXACT
        assert shorter.left_out == pytest.approx(
            shorter.total - sum(path.share for path in shorter.paths), abs=EXACT
        )


def test_wrong_contribution_is_not_absorbed_by_another():
    """MLP outputs are recorded. A difference of residuals would absorb any error."""
    _, ledger, stream, basis = terms_and_stream("class")
    spoiled = dataclasses.replace(stream, mlps=(stream.mlps[0] * 1.01, *stream.mlps[1:]))
    contributions = upstream_of(ledger, spoiled, basis, 2, 1)
    assert abs(contributions.gap) > 1e-4 * max(abs(part) for _, part in contributions.lines())
    with pytest.raises(vitviz.VitvizError, match="explained by their sources only to"):
        circuits._check_sum(contributions, ledger.trace)


@pytest.fixture(scope="module")
def genuine():
    inspector = vitviz.load(shared_file(WEIGHTS), architecture="deit_tiny_patch16_224", device="cpu")
    return inspector, inspector.trace(shared_file("data/both.png"))


def test_genuine_upstream_contributions_equal_float64_calculation(genuine):
    """DeiT-Tiny, layer 9 and head 1 (counted from 0) for bull mastiff: everything is
    calculated in float64.
    """
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
    along = (row - row.mean()) @ out @ wv  # for the normalised tokens
    by_token = {
        name: attention[head, 0] * (normed(one, p + "norm1", x) @ along) for name, one in written.items()
    }
    contributions = vitviz.upstream_contributions(inspector, trace, 243, layer, head)
    assert contributions.share == pytest.approx(2.03, abs=0.01)
    largest = max(abs(part) for _, part in contributions.lines())
    assert abs(contributions.gap) < 1e-5 * largest
    tolerance = {"atol": 2e-5, "rtol": 1e-4}
    for name in ("positions", "embedding"):
        torch.testing.assert_close(
            getattr(contributions.by_token, name).double(), by_token[name], **tolerance
        )
    for at in range(layer):
        torch.testing.assert_close(contributions.by_token.mlps[at].double(), by_token["mlp", at], **tolerance)
        torch.testing.assert_close(
            contributions.by_token.biases[at].double(), by_token["bias", at], **tolerance
        )
        for h in range(3):
            torch.testing.assert_close(
                contributions.by_token.heads[at, h].double(), by_token[at, h], **tolerance
            )
    score = vitviz.attention_score_attribution(inspector, trace, layer, head, query, key)
    assert score.score == pytest.approx((q[head, query] @ k[head, key] / 8).item(), abs=1e-4)
    assert abs(score.gap) < 1e-5 * score.matrix.abs().max()
    queries, keys = (normed(torch.stack([*written.values()]), p + "norm1", x) @ one.T for one in (wq, wk))
    names = [
        ("positions" if one.kind == "positions" else one.kind) if one.layer is None
        else (one.layer, one.head) if one.kind == "head" else (one.kind, one.layer)
        for one in score.writers
    ]  # fmt: skip
    order = torch.tensor([names.index(name) for name in written])
    expected = queries[:, query] @ keys[:, key].T / 8
    torch.testing.assert_close(score.matrix[order][:, order], expected, atol=1e-4, rtol=1e-4)
    expected = queries[:, query] @ (keys[:, key] - keys.mean(dim=1)).T / 8
    torch.testing.assert_close(score.relative[order][:, order], expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("fill", ["mean", "blur", "black"])
def test_score_attribution_accepts_painted_patches(small_inspector, fill):
    image = vitviz.sample_image("coffee")
    trace = small_inspector.trace(image, ablation=vitviz.Ablation(patches=[0, 5], patches_as=fill))
    again = small_inspector.trace(trace.view)
    torch.testing.assert_close(again.tokens[0], trace.tokens[0], rtol=0, atol=1e-5)
    account = vitviz.attention_score_attribution(small_inspector, trace, 1, 1, 5, 7)
    assert account.gap < 1e-4


def test_invalid_upstream_arguments_are_rejected(genuine):
    inspector, trace = genuine
    for arguments, sentence in [
        ({"layer": 12, "head": 0}, "layers 0 to 11"), ({"layer": 3, "head": 3}, "heads 0 to 2"),
        ({"layer": 3, "head": 1, "via": [(3, 0)]}, "each head in an earlier layer"),
    ]:  # fmt: skip
        with pytest.raises(vitviz.VitvizError, match=sentence):
            vitviz.upstream_contributions(inspector, trace, 0, **arguments)
    with pytest.raises(
        vitviz.VitvizError, match="as the key is not valid; expected the number of a token, from 0 to 196"
    ):
        vitviz.attention_score_attribution(inspector, trace, 0, 0, 0, 197)
    first = vitviz.upstream_contributions(inspector, trace, 0, 0, 2)
    assert [one.kind for one, _ in first.lines()] == ["embedding", "positions", "constant"]
    without = vitviz.Ablation(heads=[(2, 1)], patches=[0, 5])
    other = inspector.trace(shared_file("data/both.png"), ablation=without)
    contributions = vitviz.upstream_contributions(inspector, other, 0, 6, 2)
    assert abs(contributions.gap) < 1e-5 and contributions.by_token.mlps[0].isnan().sum() == 2
    with pytest.raises(vitviz.VitvizError, match="was replaced"):
        vitviz.upstream_contributions(inspector, other, 0, 2, 1)


def all_writers(layer, heads, positions=True):
    writers = [Writer("embedding"), *([Writer("positions")] if positions else [])]
    for at in range(layer):
        writers += [Writer("head", at, head) for head in range(heads)] + [
            Writer("bias", at),
            Writer("mlp", at),
        ]
    return writers


@pytest.mark.parametrize(
    "construction",
    ["registers", "average, then norm", "norm before the projection", "attention pooling", "RMSNorm, SwiGLU"]
    + ["norms of queries and keys", "rotary", "relative positions"],
)
def test_edge_ablation_by_passes_equals_hooks(construction):
    model, ledger, stream, _ = terms_and_stream(construction)
    pixels, before = pixels_for(model), {name: one.clone() for name, one in model.state_dict().items()}

    def hooked(module, change, pre=False):
        handle = (module.register_forward_pre_hook if pre else module.register_forward_hook)(change)
        with torch.no_grad():
            found = model(pixels)[0]
        handle.remove()
        return found

    # removing a component from all its readers at once removes the component
    readers = [(side, at, head) for side in SIDES for at in (1, 2) for head in range(3)]
    readers += [("mlp", 0), ("mlp", 1), ("mlp", 2), ("readout",)]
    attention = model.blocks[0].attn
    if stream.inner:  # the norm over all heads uses the deviation of the original pass
        deviation = stream.inner[0]
        before_norm = {}
        keep = attention.norm.register_forward_pre_hook(lambda m, a: before_norm.update(x=a[0].clone()))
        hooked(attention.proj, lambda m, a: None, pre=True)
        keep.remove()
        part = before_norm["x"].clone()
        part[..., :8] = part[..., 16:] = 0
        part = (part - part.mean(-1, keepdim=True)) / deviation[None, :, None] * attention.norm.weight
        gone = part @ attention.proj.weight.T
        expected = hooked(attention.proj, lambda m, a, o: o - gone)
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
    # the same for an MLP
    expected = hooked(model.blocks[0].mlp, lambda m, a, o: torch.zeros_like(o))
    later = [one for one in readers if one != ("mlp", 0)]
    (found,) = logits_without_edges(
        model, pixels, ledger, stream, [{one: [Writer("mlp", 0)] for one in later}]
    )
    torch.testing.assert_close(found, expected, atol=1e-10, rtol=0)
    # without all components, the value input of the head is zero
    block = model.blocks[2]
    writers = all_writers(2, 3, stream.positions is not None)
    (found,) = logits_without_edges(model, pixels, ledger, stream, [{("value", 2, 1): writers}])
    bias = block.norm1.bias if getattr(block.norm1, "bias", None) is not None else torch.zeros(24).double()
    values = getattr(block.attn, "qkv", None)

    def without_input(module, args, output):
        output = output.clone()
        rows = slice(48 + 8, 48 + 16)
        kept = module.bias[rows] if module.bias is not None else 0
        output[..., rows] = module.weight[rows] @ bias + kept
        return output

    if isinstance(values, torch.nn.Linear) and getattr(block.attn, "v_bias", None) is None:
        torch.testing.assert_close(found, hooked(values, without_input), atol=1e-10, rtol=0)
    # without removed edges: the model's own logits, and an unchanged model
    torch.testing.assert_close(
        logits_without_edges(model, pixels, ledger, stream, [{}, {}])[1], ledger.trace.logits
    )
    assert all(torch.equal(one, before[name]) for name, one in model.state_dict().items())
    assert not any(one._forward_hooks or one._forward_pre_hooks for one in model.modules())


@pytest.mark.long
def test_twenty_edges_of_genuine_weights_equal_hooks(genuine):
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
            expected = whole - model(pixels)[0, 243].item()
            handle.remove()
        assert effect.item() == pytest.approx(expected, abs=2e-4)
        assert share.item() == pytest.approx(lines[edge.writer])
    stopped = vitviz.edge_ablation(
        inspector, trace, (243, 282), 3, 0, into="query", batch=2, progress=lambda done, of: False
    )
    assert stopped.effects.isfinite().sum() == 2 and stopped.shares.isnan().all()


@pytest.mark.parametrize("classifier", ["maximum", "MLP"])
def test_score_attribution_accepts_any_classifier(classifier):
    """The score equals q . k of plain hooks."""
    sizes = {"img_size": 32, "patch_size": 8, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
    pooling = {"class_token": False, "global_pool": "max"} if classifier == "maximum" else {}
    model = perturbed(VisionTransformer(**sizes, **pooling)).eval()
    if classifier == "MLP":
        model.head = nn.Sequential(nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 5))
    inspector = vitviz.Inspector.of(model, mean=0.5, std=0.5, device="cpu")
    trace, inputs = inspector.trace(vitviz.sample_image("coffee")), []
    model.blocks[1].attn.qkv.register_forward_hook(lambda part, args, output: inputs.append(output[0]))
    pixels = torch.from_numpy(trace.view.picture.copy()).permute(2, 0, 1)[None].float() / 127.5 - 1
    with torch.no_grad():
        model(pixels)
    q, k, _ = (one.unflatten(-1, (3, 8)) for one in inputs[0].chunk(3, dim=-1))
    attribution = vitviz.attention_score_attribution(inspector, trace, 1, 2, 0, 7)
    assert attribution.total == pytest.approx((q[0, 2] @ k[7, 2]).item() / 8**0.5, abs=1e-5)
    with pytest.raises(UnsupportedModel):
        vitviz.upstream_contributions(inspector, trace, 0, 1, 2)
