"""Attribution view: items add up, for the requested and the chosen parts."""

import json

import numpy as np
import pytest
import torch

import vitviz
from tests.engine.constructions import small_model
from tests.engine.random_inspectors import inspect, noise
from vitviz.engine.forward.shuffling import input_from_view
from vitviz.errors import WrongSetting
from vitviz.traces.runs import Ablation
from vitviz.views import ViewContext
from vitviz.views.base import find_item
from vitviz.views.evidence import MAPS, AttributionView, compute, graph, sufficiency
from vitviz.views.routes import item_array, parse_settings

VIEW = AttributionView()


@pytest.fixture(scope="module")
def subject(inspector, trace):
    return ViewContext(inspector, trace)


def asked(subject, name: str, **given: str) -> np.ndarray:
    settings = parse_settings(VIEW, given, subject.about)
    return find_item(VIEW, name).checked(VIEW.item(subject, name, settings), subject.about)


@pytest.mark.parametrize("given", [{}, {"target": "7"}, {"target": "193-7"}, {"relative": "yes"}])
def test_items_sum_to_requested_logit(subject, given):
    start, pooling, norm_bias, head_bias, logit, total = asked(subject, "lines", **given)
    shares = [asked(subject, name, **given).sum(dtype=np.float64) for name in ("heads", "mlps", "biases")]
    assert start + pooling + norm_bias + head_bias + sum(shares) == pytest.approx(total, abs=1e-4)
    logits = subject.trace.logits.double()
    first, *other = [int(part) for part in given.get("target", str(int(logits.argmax()))).split("-")]
    expected = logits[first] - (logits[other[0]] if other else 0)
    if given.get("relative"):
        expected = expected - logits.mean()
    assert logit == pytest.approx(expected.item(), abs=1e-4) and total == pytest.approx(logit, abs=1e-4)


def test_head_and_other_heads_sum_to_full_map(subject):
    about = subject.about
    single = [
        asked(subject, "map", chosen=f"{layer}.{head}")
        for layer in range(1, about.layers + 1)
        for head in range(1, about.heads + 1)
    ]
    np.testing.assert_allclose(np.sum(single, axis=0), asked(subject, "map"), atol=1e-5)
    layer = np.sum(single[: about.heads], axis=0)
    np.testing.assert_allclose(layer, asked(subject, "map", chosen="1"), atol=1e-6)


def test_patch_contributions_by_head_sum_to_map_value(subject):
    patches, whole = [104, 105, 118], asked(subject, "map").ravel()
    through = asked(subject, "heads", patches=".".join(map(str, patches)))
    assert through.sum() == pytest.approx(whole[patches].sum(), abs=1e-5)
    assert (asked(subject, "direct", patches="104") == asked(subject, "heads")).all()
    sources = asked(subject, "sources")
    assert sources[0] == pytest.approx(whole.sum(), abs=1e-4)
    assert sources.sum() == pytest.approx(asked(subject, "heads").sum(), abs=1e-4)


def test_removed_patch_is_excluded_from_sums(inspector):
    left_out = Ablation(patches=[3, 104], patches_as="dropped")
    edited = ViewContext(inspector, inspector.trace(vitviz.sample_image("coffee"), ablation=left_out))
    whole = asked(edited, "map").ravel()
    assert np.flatnonzero(np.isnan(whole)).tolist() == [3, 104]
    by_hand = sum(float(value) for patch, value in enumerate(whole) if patch not in (3, 104))
    sources, (*_, logit, total) = asked(edited, "sources"), asked(edited, "lines")
    assert sources[0] == pytest.approx(by_hand, abs=1e-4) and total == pytest.approx(logit, abs=1e-4)
    assert sources.sum() == pytest.approx(asked(edited, "heads").sum(), abs=1e-4)
    assert asked(edited, "heads", patches="3.105").sum() == pytest.approx(whole[105], abs=1e-5)


def test_forming_prediction_ends_at_model_prediction(subject):
    forming, share = asked(subject, "forming"), asked(subject, "share")
    top = subject.trace.logits.double().softmax(-1).topk(5)
    np.testing.assert_allclose(forming[-1], top.values.numpy(), atol=1e-5)
    assert share[-1] == pytest.approx(subject.trace.logits.max().item(), abs=1e-4)
    assert len(share) == len(forming) == subject.about.layers + 1
    classes = json.loads(asked(subject, "classes").tobytes())
    assert [one["class"] for one in classes] == top.indices.tolist()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"target": "200"}, "a class from 0 to 199"),
        ({"target": "3-3"}, "two different ones"),
        ({"target": "x"}, "target='x'"),
        ({"chosen": "9.1"}, "layer 1 to 8"),
        ({"chosen": "1.4"}, "head 1 to 3"),
        ({"patches": "196"}, "from 0 to 195"),
    ],
)
def test_unknown_items_raise_with_one_based_numbers(subject, given, said):
    with pytest.raises(WrongSetting, match=said):
        asked(subject, "map" if "chosen" in given else "heads", **given)


def test_only_complete_methods_have_a_sum(subject):
    explained, rest = asked(subject, "explained", method="frozen")
    assert explained == pytest.approx(subject.trace.logits.max().item(), abs=1e-3) and abs(rest) < 1e-3
    assert np.isnan(asked(subject, "explained", method="chefer")).all()
    maps = {name: asked(subject, "map", method=name) for name, _ in MAPS}
    assert all(np.isfinite(found).all() for found in maps.values())
    ranks = {name: found.ravel().argsort().argsort() for name, found in maps.items()}
    assert len({tuple(rank) for rank in ranks.values()}) == len(maps), "each method's own"


def test_zero_ablated_head_has_no_contribution(inspector):
    trace = inspector.trace(vitviz.sample_image("coffee"), ablation=Ablation(heads=[(4, 1)], heads_as="zero"))
    edited = ViewContext(inspector, trace)
    assert asked(edited, "heads")[4, 1] == 0.0
    *_, logit, total = asked(edited, "lines")
    assert total == pytest.approx(logit, abs=1e-4) and not torch.equal(
        trace.logits, inspector.trace(trace.view.picture).logits
    )
    with pytest.raises(vitviz.VitvizError, match="need the full model"):
        asked(edited, "map", method="frozen")


@pytest.mark.parametrize("given", [{"target": "7"}, {"target": "193-7"}, {"target": "7", "relative": "yes"}])
def test_effects_are_logit_drops_of_single_ablations(subject, inspector, given):
    def asked_of(logits) -> float:
        first, *other = [int(part) for part in given["target"].split("-")]
        less = logits[other[0]] if other else logits.mean() if "relative" in given else 0
        return float(logits[first] - less)

    whole = asked_of(subject.trace.logits.double())
    found = asked(subject, "effects", layer="6", **given)
    assert found.shape == (subject.about.heads + 1,)
    for part, expected in enumerate(found):
        lost = Ablation(heads=[(5, part)]) if part < subject.about.heads else Ablation(mlps=[5])
        without = inspector.trace(vitviz.sample_image("coffee"), ablation=lost).logits.double()
        assert whole - asked_of(without) == pytest.approx(expected, abs=2e-4)


@pytest.mark.long
def test_correlation_of_effects_and_contributions_matches_numpy(subject):
    layers = range(1, subject.about.layers + 1)
    effects = np.stack([asked(subject, "effects", layer=str(layer)) for layer in layers])
    heads, mlps = asked(subject, "agreement")
    shares = asked(subject, "heads").astype(np.float64)
    assert heads == pytest.approx(np.corrcoef(effects[:, :-1].ravel(), shares.ravel())[0, 1], abs=1e-5)
    assert mlps == pytest.approx(np.corrcoef(effects[:, -1], asked(subject, "mlps"))[0, 1], abs=1e-5)
    taken = VIEW.numbers(subject, parse_settings(VIEW, {"show": "effects"}, subject.about))
    np.testing.assert_allclose(taken["effects_of_heads"], effects[:, :-1], atol=1e-6)
    np.testing.assert_allclose(taken["effects_of_mlps"], effects[:, -1], atol=1e-6)
    assert taken["correlations"].tolist() == pytest.approx([heads, mlps], abs=1e-6)
    assert -1 <= heads <= 1 and abs(effects[:, :-1] - shares).max() > 0.05, "later layers react"


@pytest.mark.long
@pytest.mark.parametrize("part", ["heads", "mlps"])
def test_partial_effects_chart_has_dots_and_no_correlation(subject, part):
    def of(layer):
        given = {"show": "effects", "part": part, "layer": layer}
        settings = parse_settings(VIEW, given, subject.about)
        return json.loads(item_array(VIEW, subject, "chart", settings).tobytes())

    some, whole = of("7"), of("1")
    count = subject.about.heads if part == "heads" else 1
    assert [len(one["series"][-1]["y"]) for one in (some, whole)] == [2 * count, 8 * count]
    assert ["Correlation" in json.dumps(one["notes"]) for one in (some, whole)] == [False, True]
    dots = whole["series"][-1]
    assert dots["x"] == sorted(dots["x"]), "keys go from the least share to the largest"
    if part == "heads":
        layer, head = (dots["of"][name][5] for name in ("layer", "head"))
        assert dots["y"][5] == pytest.approx(asked(subject, "effects", layer=str(layer))[head - 1], rel=1e-4)


def test_upstream_bars_sum_to_head_contribution(subject):
    settings = parse_settings(VIEW, {"show": "writers", "trail": "5.2"}, subject.about)
    chart = json.loads(item_array(VIEW, subject, "chart", settings).tobytes())
    share = VIEW.numbers(subject, settings)["written_otherwise"][0]
    assert sum(chart["bars"]["high"]) == pytest.approx(share, abs=1e-3)
    assert chart["bars"]["of"]["writer"][:4] == ["embedding", "positions", "", "mlp.1"]


def test_effects_of_another_class_need_no_new_pass(inspector, monkeypatch):
    kept = {}

    def once(name, make):
        return kept[name] if name in kept else kept.setdefault(name, make())

    subject = ViewContext(inspector, inspector.trace(vitviz.sample_image("coffee")), once=once)
    first = asked(subject, "effects", layer="8", target="7")
    monkeypatch.setattr(inspector, "layer_effects", None)
    assert not np.allclose(first, asked(subject, "effects", layer="8", target="8"))


def test_patch_lens_map_agrees_with_its_top_three(subject):
    depth = subject.about.layers
    best, own = asked(subject, "best"), asked(subject, "own", target="7")
    assert best.shape == (14, 14, 3, 2) and own.shape == (14, 14)
    assert (np.diff(best[..., 1], axis=-1) <= 0).all() and (best[..., 1].sum(axis=-1) <= 1 + 1e-6).all()
    first = asked(subject, "own", target=str(int(best[4, 9, 0, 0])), depth=str(depth))
    assert first[4, 9] == pytest.approx(best[4, 9, 0, 1], abs=1e-6)
    assert not np.allclose(own, asked(subject, "own", target="7", depth="0"))
    assert VIEW.summary(subject)["patches"] == "probe"


def test_removed_patches_have_no_lens_and_no_effects(inspector):
    trace = inspector.trace(vitviz.sample_image("coffee"), ablation=Ablation(patches=[0, 17]))
    edited = ViewContext(inspector, trace)
    best, own = asked(edited, "best"), asked(edited, "own")
    gone = np.isnan(own).ravel()
    assert gone.nonzero()[0].tolist() == [0, 17] and ((best[..., 0, 1].ravel() < 0) == gone).all()
    with pytest.raises(vitviz.VitvizError, match="needs the full model"):
        asked(edited, "effects", layer="1")


@pytest.mark.parametrize(
    "construction, said", [("attention pooling", "weighs all"), ("class and mean", "side")]
)
def test_patch_lens_rejects_unsupported_readouts(construction, said):
    other = inspect(small_model(construction).float())
    subject = ViewContext(other, other.trace(noise()))
    assert said in VIEW.summary(subject)["patches"]
    with pytest.raises(vitviz.VitvizError, match=said):
        asked(subject, "best")


def test_trail_follows_writers_of_a_head(subject):
    inspector, trace, view = subject.inspector, subject.trace, VIEW
    settings = parse_settings(view, {"show": "writers", "trail": "7.2-4.1", "writer": "mlp.2"}, subject.about)
    found = vitviz.upstream_contributions(inspector, trace, int(trace.logits.argmax()), 3, 0, via=[(6, 1)])
    share, total, *_ = view.numbers(subject, settings)["written_otherwise"]
    assert share == pytest.approx(found.share) and total == pytest.approx(share, abs=1e-5)
    by_token = found.by_token.mlps[1][trace.grid.prefix :]
    np.testing.assert_allclose(view.item(subject, "writer_map", settings).ravel(), by_token, rtol=1e-5)
    lines = found.by_token
    first = lines.embedding[0] + lines.positions[0] + lines.constant[0] + lines.heads[:3, :, 0].sum()
    first += (lines.mlps + lines.biases)[:3, 0].sum()  # read at the class token
    whole = view.item(subject, "writer_map", {**settings, "writer": ""}).sum()
    assert whole + first.item() == pytest.approx(share, abs=1e-5)
    steps = json.loads(bytes(view.item(subject, "trail", settings)))
    above = vitviz.upstream_contributions(inspector, trace, int(trace.logits.argmax()), 6, 1)
    assert [step[:2] for step in steps] == [[7, 2], [4, 1]]
    assert [step[2] for step in steps] == pytest.approx([above.share, above.heads[3, 0].item()])
    taken = view.numbers(subject, settings)
    assert taken["written_by_heads"].shape == tuple(found.heads.shape) and taken[
        "written_by_layers"
    ].shape == (2, 8)
    for wrong in ({"trail": "4.1-7.2"}, {"trail": "9.1"}, {"writer": "mlp.99"}):
        with pytest.raises(WrongSetting, match="(trail|writer)="):
            view.item(subject, "writer_map", {**settings, **wrong})


@pytest.mark.long
def test_graph_edges_carry_sums_of_their_paths(subject):
    settings = parse_settings(VIEW, {"show": "paths", "paths": "20"}, subject.about)
    chart = json.loads(item_array(VIEW, subject, "chart", settings).tobytes())
    paths = vitviz.attribution_paths(
        subject.inspector, subject.trace, int(subject.trace.logits.argmax()), count=20
    )
    taken = VIEW.numbers(subject, settings)
    assert taken["path_shares"].tolist() == pytest.approx([one.share for one in paths.paths])
    assert taken["path_sums"][:2].tolist() == pytest.approx([paths.total, paths.left_out])
    bound, proven = taken["path_bound"].tolist()
    assert proven == paths.proven == 1 and bound <= abs(paths.paths[-1].share)
    sums, claim, _ = (one["text"] for one in chart["notes"])
    assert "Large paths of opposite sign can cancel" in sums and claim == graph.PROVEN
    (layer, head), writer = paths.paths[0].heads[-1], paths.paths[0].writer
    first = f"{writer.kind}.{writer.layer + 1} > head.{layer + 1}.{head + 1}"
    assert taken["paths"][0].startswith(first)
    edges = {one["key"]: one for one in chart["series"] if one["key"]}
    both = [one.share for one in paths.paths if (one.heads[-1], one.writer) == ((layer, head), writer)]
    assert edges[first]["said"][0] == f"{sum(both):+.2f}".replace("-", "−")
    into = [float(one["said"][0].replace("−", "-")) for key, one in edges.items() if key.endswith("answer")]
    assert sum(into) == pytest.approx(sum(one.share for one in paths.paths), abs=0.005 * len(into))
    heads = chart["series"][-1]
    assert len(heads["of"]["trail"]) == len({one for path in paths.paths for one in path.heads})
    assert all(compute.trail(subject, {"trail": one}) for one in heads["of"]["trail"])


def test_unproven_paths_are_labelled_as_largest_found(inspector, trace, monkeypatch):
    monkeypatch.setattr(graph, "WORK", 0)
    subject = ViewContext(inspector, trace)
    settings = parse_settings(VIEW, {"show": "paths", "paths": "30"}, subject.about)
    chart = graph.chart(VIEW, subject, settings)
    assert str(chart.title) == "The 30 largest paths found to the output"
    found = graph.largest_paths(subject, settings)
    assert not found.proven and found.opened == 24  # every head once
    told = chart.notes[1]
    assert told.pattern == graph.FOUND and found.bound <= float(told.values["bound"]) < found.bound + 0.0101
    assert VIEW.numbers(subject, settings)["path_bound"].tolist() == [found.bound, 0]


def test_the_page_says_which_tried_sizes_preserve_the_prediction():
    counts = np.asarray([0, 4, 8, 20, 39])
    margins = np.asarray([[-1, 1, -1, 1, 2], [-1, -1, -1, 1, 2], [-1, -1, 1, 1, 2.0]])
    told = sufficiency._notes(counts, margins, 39)
    assert told[0] == (
        "The 4 largest edges (10 %) preserve the prediction. This is the smallest of the 5 numbers tried that"
        " does; every number tried from 20 edges (51 %) upwards also does."
    )
    assert told[1] == (
        "Random subsets first preserve the prediction at 21 % · 51 % of the edges"
        " (one value per random order)."
    )
    assert sufficiency._notes(counts, -margins, 39) == (sufficiency.NONE,)


@pytest.mark.long
@pytest.mark.parametrize("into", ["value", "key"])
def test_edge_effects_match_passes_with_hooks(subject, into):
    model, trace = subject.inspector.model, subject.trace
    given = {"show": "writers", "beside": "truth", "trail": "5.2", "into": into, "parts_as": "zero"}
    settings = parse_settings(VIEW, {**given, "relative": "yes"}, subject.about)
    taken = VIEW.numbers(subject, settings)
    names = taken["edge_writers"].tolist()
    assert len(names) == 2 + 4 * 4 and names[0] == "embedding"
    lines = dict(
        vitviz.upstream_contributions(
            subject.inspector, trace, int(trace.logits.argmax()), 4, 1, relative=True
        ).lines()
    )
    block, kept, dim = model.blocks[4], {}, trace.layers[0].v.shape[-1]
    side = 3 * dim * ("query", "key", "value").index(into)
    rows = slice(side + dim, side + 2 * dim)
    pixels = subject.inspector.forward.pixels([input_from_view(trace.view, subject.inspector.preprocessing)])

    def answer(**hooks):
        handles = [
            model.get_submodule(name.replace("_", ".")).register_forward_hook(hook)
            for name, hook in hooks.items()
        ]
        with torch.no_grad():
            logits = model(pixels)[0].double()
        for handle in handles:
            handle.remove()
        return logits[trace.logits.argmax()] - logits.mean()

    whole = answer(
        blocks_4_norm1=lambda m, a, o: kept.update(read=a[0]),
        blocks_2_mlp=lambda m, a, o: kept.update(mlp=o),
        blocks_1_attn_proj=lambda m, a, o: kept.update(heads=a[0]),
    )
    heads = kept["heads"][..., 2 * dim :] @ model.blocks[1].attn.proj.weight[:, 2 * dim :].T
    for name, part in {"mlp.3": kept["mlp"], "head.2.3": heads, "positions": model.pos_embed}.items():

        def less(module, args, output, part=part):
            output = output.clone()
            other = block.norm1(kept["read"] - part) @ module.weight[rows].T + module.bias[rows]
            output[..., rows] = other
            return output

        lost = whole - answer(blocks_4_attn_qkv=less)
        assert taken["edge_effects"][names.index(name)] == pytest.approx(lost.item(), abs=1e-4)
    if into == "key":
        assert np.isnan(taken["edge_lines"]).all()
        return
    shares = [lines[writer] for writer in lines if writer.kind not in ("bias", "constant")]
    assert taken["edge_lines"].tolist() == pytest.approx(shares)
    told = json.loads(VIEW.item(subject, "truth", settings).tobytes())
    assert (told["done"], told["count"]) == (18, 18) and told["series"][-1]["of"]["lit"][2] == "heads.1"
    alike = np.corrcoef(taken["edge_effects"], taken["edge_lines"])[0, 1]
    assert told["notes"][1]["values"]["value"] == f"{alike:.2f}".replace("-", "−")
    some = json.loads(VIEW.item(subject, "truth", {**settings, "tried": 1, "parts_as": "mean"}).tobytes())
    assert (some["done"], some["count"], some["notes"]) == (8, 17, [])  # a mean has the positions too


@pytest.mark.parametrize("given", [{}, {"target": "7"}, {"target": "193-7"}])
def test_prediction_change_of_ablated_heads_equals_two_separate_passes(inspector, trace, given):
    heads = [(layer, head) for layer in range(4, 8) for head in range(3)]
    edited = inspector.trace(vitviz.sample_image("coffee"), ablation=Ablation(heads=heads))
    context = ViewContext(inspector, edited, original=lambda: ViewContext(inspector, trace))
    told = json.loads(asked(context, "change", **given).tobytes())
    logits = [one.logits.numpy().astype(float) for one in (trace, edited)]
    first, *other = map(int, given.get("target", str(logits[0].argmax())).split("-"))
    pair = [values[first] - values[other[0]] if other else values[first] for values in logits]
    assert told["logits"] == pytest.approx(pair, abs=1e-6)
    shares = [np.exp(values - values.max()) / np.exp(values - values.max()).sum() for values in logits]
    assert told["scores"] == (None if other else pytest.approx([one[first] for one in shares], abs=1e-9))
    assert logits[0].argmax() != logits[1].argmax(), "the pass without these heads predicts another class"
    assert told["now"]["text"] == trace.labels[logits[1].argmax()]


def test_prediction_change_without_any_edit_is_null(subject):
    assert json.loads(asked(subject, "change").tobytes()) is None
