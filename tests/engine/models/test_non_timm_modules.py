"""Modules without an equivalent timm model: attention and tokens equal those of plain hooks or eager
attention.
"""

from functools import partial
from types import MethodType

import pytest
import timm
import torch
import torchvision
import transformers
from torch import nn

import vitviz
from tests.engine.models.explicit_attention import Attention, ListViT, SimpleViT, SwiGLU, TupleViT
from tests.engine.small_models import perturbed, small_vit
from vitviz.analyses.query import query_weights
from vitviz.errors import AssumedWarning, UnsupportedModel, VitvizError

OPTIONS = {"mean": 0.5, "std": 0.5, "device": "cpu", "size": 32}
IMAGE = vitviz.sample_image("coffee")


def inspect_module(model, **options):
    return vitviz.Inspector.of(model, **{**OPTIONS, **options})


def pixels_of(trace):
    picture = torch.from_numpy(trace.view.picture.copy()).permute(2, 0, 1)[None].float() / 255
    return (picture - 0.5) / 0.5


def assert_same(actual, expected):
    torch.testing.assert_close(actual, expected, atol=1e-6, rtol=1e-5)


def state_of(model):
    """Return everything that an inspection could change."""
    hooks = [
        len(kept) for part in model.modules()
        for kept in (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks)
    ]  # fmt: skip
    modes = torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()
    flags = [part.training for part in model.modules()]
    return hooks, modes, flags, torch.get_rng_state().tolist(), torch.is_grad_enabled()


PRODUCTS = ("matmul", "einsum", "in place", "baddbmm", "temperature", "keys first")


@pytest.mark.parametrize("way", PRODUCTS)
def test_explicit_attention_and_tokens_equal_plain_hooks(way):
    model = ListViT(way=way).train()
    before = state_of(model)
    trace = inspect_module(model).trace(IMAGE)
    assert state_of(model) == before
    weights, inputs = [], []
    for attention, _ in model.layers:
        attention.attend.register_forward_hook(lambda part, args, output: weights.append(output[0]))
        attention.register_forward_pre_hook(lambda part, args: inputs.append(args[0][0]))
    model.norm.register_forward_pre_hook(lambda part, args: inputs.append(args[0][0]))
    with torch.no_grad():
        assert_same(trace.logits, model.eval()(pixels_of(trace))[0])
    for layer, expected in enumerate(weights):
        assert_same(trace.attention(layer), expected)
    for actual, expected in zip(trace.tokens, inputs, strict=True):
        assert_same(actual, expected)
    assert trace.grid.prefix_names == ("class",)


def test_simple_vit_attention_and_tokens_equal_plain_hooks():
    model = SimpleViT().eval()
    inspector = inspect_module(model)
    trace, weights, inputs, embedded = inspector.trace(IMAGE), [], [], []
    for attention, _ in model.transformer.layers:
        attention.attend.register_forward_hook(lambda part, args, output: weights.append(output[0]))
        attention.register_forward_pre_hook(lambda part, args: inputs.append(args[0][0]))
    model.transformer.norm.register_forward_pre_hook(lambda part, args: inputs.append(args[0][0]))
    model.to_patch_embedding[2].register_forward_hook(lambda part, args, output: embedded.append(output[0]))
    with torch.no_grad():
        assert_same(trace.logits, model(pixels_of(trace))[0])
    for layer, expected in enumerate(weights):
        assert_same(trace.attention(layer), expected)
    for actual, expected in zip(trace.tokens, inputs, strict=True):
        assert_same(actual, expected)
    assert_same(trace.patch_embedding, embedded[0].flatten(0, 1))
    assert trace.grid.prefix_names == () and trace.grid.patches == 16
    assert "blocks: transformer.layers: 2 x ModuleList" in inspector.describe()


def test_tokens_after_patches_become_prefix():
    model = ListViT(after=2)
    inspector = inspect_module(model)
    trace = inspector.trace(IMAGE)
    assert trace.grid.prefix_names == ("register 1", "register 2") and trace.grid.patches == 16
    assert_same(trace.tokens[0][:2], model.registers[0].detach())


@pytest.mark.parametrize("weights", [True, False])
def test_pytorch_attention_is_captured_despite_fast_path(weights):
    """Without weights, evaluation would use the native fast path, which exposes no operation."""
    model = TupleViT(weights=weights).eval()
    before = state_of(model)
    trace = inspect_module(model, output="scores").trace(IMAGE)
    assert state_of(model) == before and torch.backends.mha.get_fastpath_enabled()
    weights_by_layer, outputs = [], []
    for block in model.blocks:
        block.weights = True
        block.attention.register_forward_hook(
            lambda part, args, output: weights_by_layer.append(output[1][0])
        )
        block.register_forward_hook(lambda part, args, output: outputs.append(output[0][0].clone()))
    with torch.no_grad():
        assert_same(trace.logits, model(pixels_of(trace))["scores"][0])
    for layer, expected in enumerate(weights_by_layer):
        assert_same(trace.attention(layer), expected)
        assert_same(trace.tokens[layer + 1], outputs[layer])


def test_torchvision_module_equals_its_timm_twin():
    model = perturbed(torchvision.models.VisionTransformer(32, 8, 2, 4, 48, 96, num_classes=5))
    trace = inspect_module(model, blocks="encoder.layers").trace(IMAGE)
    twin = inspect_module(model).trace(IMAGE)
    for layer in range(2):
        torch.testing.assert_close(trace.attention(layer), twin.attention(layer), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(trace.tokens[layer], twin.tokens[layer], atol=1e-5, rtol=1e-5)
    assert_same(trace.patch_embedding, twin.patch_embedding)


SIZES = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip


@pytest.mark.parametrize(
    "build",
    [
        lambda: transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**SIZES)),
        lambda: transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**SIZES)),
        lambda: transformers.IJepaModel(transformers.IJepaConfig(**SIZES)),
        lambda: transformers.ViTMSNModel(transformers.ViTMSNConfig(**SIZES)),
    ],
    ids=["CLIP", "SigLIP", "I-JEPA", "MSN"],
)
def test_transformers_towers_equal_eager_attention(build):
    model = perturbed(build())
    trace = inspect_module(model).trace(IMAGE)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(pixels_of(trace), output_attentions=True, output_hidden_states=True)
    for layer, attention in enumerate(expected.attentions):
        assert_same(trace.attention(layer), attention[0])
    for layer in range(2):
        torch.testing.assert_close(
            trace.tokens[layer], expected.hidden_states[layer][0], atol=1e-5, rtol=1e-5
        )


class WindowedAttention(nn.Module):
    """Attention within each half of the sequence."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.reshape(2, -1, x.shape[-1])).reshape(x.shape)


def windowed_model():
    model = ListViT(after=2)
    for pair in model.layers:
        pair[0] = WindowedAttention(pair[0])
    return model


UNSUPPORTED = {
    "talking heads before": lambda: ListViT(way="mixed before"),
    "talking heads after": lambda: ListViT(way="mixed after"),
    "weights changed after the softmax": lambda: ListViT(way="changed after"),
    "windows": windowed_model,
    "Swin": lambda: timm.create_model(
        "swin_tiny_patch4_window7_224",
        img_size=32,
        window_size=4,
        embed_dim=24,
        depths=(2, 2),
        num_heads=(2, 2),
    ),
    "convolutions": lambda: torchvision.models.resnet18(num_classes=5),
}


@pytest.mark.parametrize("kind", UNSUPPORTED)
def test_module_without_single_attention_map_is_rejected_unchanged(kind):
    model = UNSUPPORTED[kind]().train()
    before = state_of(model)
    with pytest.raises(UnsupportedModel) as error:
        inspect_module(model)
    assert state_of(model) == before and str(error.value).count(". ") <= 2


def test_failing_module_is_rejected_unchanged():
    model = TupleViT()
    model.blocks[1].mlp = nn.Linear(31, 31)
    before = state_of(model)
    with pytest.raises(UnsupportedModel, match="RuntimeError"):
        inspect_module(model, output="scores")
    assert state_of(model) == before


def test_ambiguous_output_and_unknown_names_are_rejected():
    with pytest.raises(VitvizError, match="output='scores'"):
        inspect_module(TupleViT())
    with pytest.raises(VitvizError, match="scores, side"):
        inspect_module(TupleViT(), output="logits")
    with pytest.raises(VitvizError, match="layers"):
        inspect_module(ListViT(), blocks="transformer.layers")


def test_analyses_that_need_readout_are_rejected_for_custom_module():
    inspector = inspect_module(ListViT(mlp=lambda: SwiGLU(32)))
    trace, name = inspector.trace(IMAGE), inspector.checkpoint.name
    results = [
        vitviz.rollout(trace), vitviz.attention_distance(trace), vitviz.token_similarity(trace, 1, 3),
        vitviz.token_norms(trace), vitviz.token_components([trace], 1).scores,
    ]  # fmt: skip
    assert all(torch.as_tensor(result).isfinite().all() for result in results)
    assert "layers: 3 x ModuleList" in inspector.describe() and "verified" in inspector.describe()
    for compute in (
        lambda: vitviz.logit_attribution(inspector, trace, 0),
        lambda: vitviz.logit_lens(inspector, trace),
        lambda: vitviz.saliency(inspector, IMAGE, 0),
        lambda: vitviz.faithfulness(inspector, IMAGE, 0, methods=["random", "gradient_rollout"]),
        lambda: vitviz.attribution_paths(inspector, trace, 0),
        lambda: vitviz.upstream_contributions(inspector, trace, 0, 1, 0),
        lambda: vitviz.attention_score_attribution(inspector, trace, 0, 1, 0, 0),
        lambda: vitviz.edge_ablation(inspector, trace, 0),
        lambda: vitviz.sufficient_edges(inspector, trace),
        lambda: vitviz.token_similarity(trace, 1, 3, norm=inspector),
        lambda: inspector.trace(IMAGE, ablation=vitviz.Ablation(heads=[(0, 1)])),
        lambda: inspector.effects(IMAGE, 0),
        lambda: inspector.layer_effects(IMAGE, 0),
        lambda: inspector.experiment(IMAGE, positions=False),
        lambda: inspector.readout(trace),
        lambda: inspector.tail(),
        lambda: inspector.parts(),
        lambda: vitviz.position_similarity(inspector),
    ):
        with pytest.raises(VitvizError, match=name):
            compute()
            pytest.fail(str(compute.__code__.co_firstlineno))


class SequenceViT(nn.Module):
    """A model of given blocks, with `before` prefix tokens and a given pooling of all tokens."""

    def __init__(self, blocks, pool=None, before=1):
        super().__init__()
        self.embed, self.first = nn.Conv2d(3, 32, 8, 8), nn.Parameter(torch.randn(1, before, 32))
        self.blocks, self.pool, self.head = nn.Sequential(*blocks), pool, nn.Linear(32, 5)

    def forward(self, image):
        x = self.embed(image).flatten(2).mT
        x = self.blocks(torch.cat([self.first.expand(len(x), -1, -1), x], dim=1))
        return self.head(x[:, 0] if self.pool is None else self.pool(x).mean(dim=1))


class Residual(nn.Module):
    """A block that adds its attention to its input; `shift` moves first tokens to the end for attention."""

    def __init__(self, heads=4, shift=0):
        super().__init__()
        self.attention, self.shift = Attention(32, heads), shift

    def forward(self, x):
        return x + self.attention(x.roll(-self.shift, 1)).roll(self.shift, 1)


class OtherBlock(Residual):
    """The same block under another class."""


class Pool(nn.Module):
    """Attention of learned queries, or of the tokens themselves, to all tokens."""

    def __init__(self, queries):
        super().__init__()
        self.queries = nn.Parameter(torch.randn(1, queries, 32)) if queries else None
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x):
        return self.attention(x if self.queries is None else self.queries, x, x, need_weights=False)[0]


class Stem(nn.Module):
    """Convolutions of given kernel, stride and padding, then tokens by rows, or by columns if `turned`."""

    def __init__(self, *kernels, turned=False, mixed=False):
        super().__init__()
        self.convolutions, self.turned = nn.Sequential(), turned
        for number, (kernel, stride, padding) in enumerate(kernels):
            self.convolutions += nn.Sequential(
                nn.Conv2d(32 if number else 3, 32, kernel, stride, padding), nn.BatchNorm2d(32), nn.GELU()
            )
        self.mix = nn.Linear(16, 16) if mixed else nn.Identity()

    def forward(self, image):
        grid = self.convolutions(image)
        return self.mix((grid.mT if self.turned else grid).flatten(2)).view(len(image), 32, 4, 4)


STEMS = {
    "three of kernel 3": [(3, 2, 1)] * 3,
    "one of kernel 16": [(16, 8, 4)],
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("name", STEMS)
def test_tokens_of_overlapping_stem_are_those_of_its_convolutions(name, turned):
    model = SequenceViT(blocks_of()).eval()
    model.embed = Stem(*STEMS[name], turned=turned)
    inspector = inspect_module(model.eval())
    trace = inspector.trace(IMAGE)
    with torch.no_grad():
        features = model.embed.convolutions(pixels_of(trace))[0].flatten(1).mT
    assert_same(trace.tokens[0][1:], features)
    assert "4 x 4 of (8, 8), around which their tokens read overlapping pixels" in inspector.describe()


def test_stem_that_mixes_all_patches_is_rejected():
    model = SequenceViT(blocks_of())
    model.embed = Stem((8, 8, 0), mixed=True)
    with pytest.raises(UnsupportedModel, match="some patches are dropped, merged or mixed"):
        inspect_module(model)


def blocks_of(kind=Residual, count=3):
    return [kind() for _ in range(count)]


OUTSIDE = {
    "before": (lambda: SequenceViT([OtherBlock(), *blocks_of()]), r"blocks\.0 \(OtherBlock\)"),
    "after": (lambda: SequenceViT([*blocks_of(), OtherBlock()]), r"blocks\.3 \(OtherBlock\)"),
    "pooling of all tokens": (lambda: SequenceViT(blocks_of(), Pool(0)), r"pool \(Pool\)"),
}


@pytest.mark.parametrize("place", OUTSIDE)
def test_attention_outside_found_blocks_is_rejected(place):
    build, names = OUTSIDE[place]
    with pytest.raises(UnsupportedModel, match=names):
        inspect_module(build())


def test_blocks_of_two_classes_are_inspected_by_path():
    trace = inspect_module(SequenceViT([OtherBlock(), *blocks_of()]), blocks="blocks").trace(IMAGE)
    assert len(trace.layers) == 4


def test_attention_outside_given_blocks_is_left_out_and_said():
    inspector = inspect_module(SequenceViT(blocks_of(), Pool(0)), blocks="blocks")
    assert len(inspector.trace(IMAGE).layers) == 3
    assert "attention outside them is not shown" in str(inspector.describe())


@pytest.mark.parametrize("queries", [1, 5])
def test_attention_pooling_by_learned_queries_is_accepted(queries):
    assert len(inspect_module(SequenceViT(blocks_of(), Pool(queries))).trace(IMAGE).layers) == 3


@pytest.mark.parametrize("layer", [0, 2])
def test_tokens_reordered_inside_block_are_rejected(layer):
    blocks = [Residual(shift=int(number == layer)) for number in range(3)]  # the class token
    with pytest.raises(UnsupportedModel, match=f"block {layer + 1} than"):
        inspect_module(SequenceViT(blocks))


class Rolled(Residual):
    """A block that moves the patches of its output."""

    def forward(self, x):
        output = super().forward(x)
        return torch.cat([output[:, :1], output[:, 1:].roll(5, 1)], 1)


class Mixed(Attention):
    """Attention whose values of the patches are convolved over the grid."""

    def __init__(self, width, heads):
        super().__init__(width, heads)
        self.convolution = nn.Conv2d(width, width, 3, padding=1, groups=width)

    def forward(self, x):
        q, k, v = self.to_qkv(self.norm(x)).chunk(3, dim=-1)
        near = self.convolution(v[:, 1:].mT.unflatten(2, (4, 4))).flatten(2).mT
        v = torch.cat([v[:, :1], near], 1)
        q, k, v = (one.unflatten(-1, (self.heads, -1)).transpose(1, 2) for one in (q, k, v))
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))


class Selecting(SequenceViT):
    """Tokens in order of their similarity to the class token, after the first block."""

    def forward(self, image):
        x = self.embed(image).flatten(2).mT
        x = self.blocks[0](torch.cat([self.first.expand(len(x), -1, -1), x], dim=1))
        order = (x[:, 1:] @ x[:, :1].mT).argsort(dim=1).expand(-1, -1, 32)
        x = self.blocks[1:](torch.cat([x[:, :1], x[:, 1:].gather(1, order)], dim=1))
        return self.head(x[:, 0])


def blocks_with_mixed_values():
    blocks = blocks_of()
    blocks[1].attention = Mixed(32, 4)
    return blocks


class Sorted(Residual):
    """A block that sorts the patches of its output by their norm."""

    def forward(self, x):
        output = super().forward(x)
        order = output[:, 1:].norm(dim=-1, keepdim=True).argsort(dim=1).expand(-1, -1, 32)
        return torch.cat([output[:, :1], output[:, 1:].gather(1, order)], 1)


MOVED = {
    "values": (
        lambda: SequenceViT(blocks_with_mixed_values()),
        "attention of block 2 than at the block's input",
    ),
    "output": (lambda: SequenceViT(blocks_of(Rolled)), "output of block 1 than at the block's"),
    "output, by content": (lambda: SequenceViT(blocks_of(Sorted)), "output of block 1 than at the block's"),
    "between": (lambda: Selecting(blocks_of()), "input of block 2 than at the output of block 1"),
}


@pytest.mark.parametrize("place", MOVED)
def test_tokens_moved_elsewhere_are_rejected(place):
    make, message = MOVED[place]
    with pytest.raises(UnsupportedModel, match=message):
        inspect_module(make())


class WithTeacher(nn.Module):
    """A model with a deeper one beside it that is not called."""

    def __init__(self):
        super().__init__()
        self.teacher = SequenceViT([Residual() for _ in range(6)])
        self.student = SequenceViT(blocks_of())

    def forward(self, image):
        return self.student(image)


def test_blocks_that_are_not_called_are_ignored():
    trace = inspect_module(model := WithTeacher()).trace(IMAGE)
    expected = inspect_module(model.student).trace(IMAGE)
    assert len(trace.layers) == 3
    assert_same(trace.attention(2), expected.attention(2))


class ByHand(nn.Module):
    """Attention with a softmax written as exponentials and their sum."""

    def __init__(self):
        super().__init__()
        self.to_qkv = nn.Linear(32, 96)

    def forward(self, x):
        q, k, v = (one.unflatten(-1, (4, 8)).transpose(1, 2) for one in self.to_qkv(x).chunk(3, dim=-1))
        weights = (q @ k.mT).exp()
        return (weights / weights.sum(-1, keepdim=True) @ v).transpose(1, 2).flatten(2)


class Doubled(Residual):
    """A block that adds two attentions, the second without a softmax of torch."""

    def __init__(self):
        super().__init__()
        self.second = ByHand()

    def forward(self, x):
        return x + self.attention(x) + self.second(x)


def test_second_attention_without_softmax_is_rejected():
    with pytest.raises(UnsupportedModel, match="further weights"):
        inspect_module(SequenceViT(blocks_of(Doubled)))


def test_head_dimension_equal_to_tokens_is_no_second_attention():
    """Queries are then as square as attention weights."""
    model = SequenceViT([Residual(heads=2), Residual(heads=2)], before=0)
    assert inspect_module(model).trace(IMAGE).layers[0].q.shape[1:] == (16, 16)


@pytest.mark.parametrize("convert", [torch.jit.trace, lambda *given: torch.export.export(*given).module()])
@pytest.mark.filterwarnings("ignore")
def test_traced_or_exported_module_is_rejected(convert):
    converted = convert(SequenceViT(blocks_of()).eval(), (torch.randn(1, 3, 32, 32),))
    with pytest.raises(UnsupportedModel, match="traced or exported"):
        inspect_module(converted)


WRONG = [
    {"blocks": "head"}, {"patch": 0}, {"patch": -8}, {"prefix": [0]}, {"heads": 8}, {"heads": 5},
    {"output": 0}, {"output": "logits"},
]  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_facts_about_module_are_named(wrong):
    (name,) = wrong
    with pytest.raises(VitvizError, match=f"{name}="):
        inspect_module(SequenceViT(blocks_of()), **wrong)


def test_check_of_custom_module_reports_findings():
    report = vitviz.check(inspect_module(SequenceViT(blocks_of())), [IMAGE] * 3)
    names = {finding.name for finding in report.findings}
    assert report.findings and not names & {"patch_filters", "layer_order", "no_forward_pass"}


class ReadViT(SequenceViT):
    """A model with `before` tokens in front of the patches, `after` behind, and a head of a given readout."""

    def __init__(self, read, before=0, after=0):
        super().__init__(blocks_of(), before=before + after)
        self.read, self.before, self.norm = read, before, nn.LayerNorm(32)
        self.query = nn.Parameter(torch.randn(32))

    def forward(self, image):
        x, tokens = self.embed(image).flatten(2).mT, self.first.expand(len(image), -1, -1)
        x = self.blocks(torch.cat([tokens[:, : self.before], x, tokens[:, self.before :]], dim=1))
        return self.head(self.read(self, x))


READOUTS = {  # readout, tokens before and behind the patches -> names, and the weight of every token
    "class token behind the patches": (lambda m, x: m.norm(x)[:, -1], 0, 1, ["class"], [0]),
    "last of three tokens": (lambda m, x: m.norm(x[:, -1]), 1, 2, ["register 1", "register 2", "class"], [2]),
    "second token": (lambda m, x: m.norm(x)[:, 1], 2, 0, ["register 1", "class"], [1]),
    "class token": (lambda m, x: m.norm(x)[:, 0], 2, 0, ["class", "register 1"], [0]),
    "mean before the norm": (lambda m, x: m.norm(x[:, 1:].mean(1)), 1, 0, ["class"], range(1, 17)),
    "mean of normed patches": (lambda m, x: m.norm(x)[:, :-1].mean(1), 0, 1, ["register 1"], range(1, 17)),
    "mean of all": (lambda m, x: m.norm(x).mean(1), 1, 0, ["class"], range(17)),
    "mean without prefix": (lambda m, x: m.norm(x).mean(1), 0, 0, [], range(16)),
}


@pytest.mark.parametrize("name", READOUTS)
def test_auto_query_is_what_custom_module_reads(name, recwarn):
    read, before, after, names, tokens = READOUTS[name]
    torch.manual_seed(0)
    inspector = inspect_module(ReadViT(read, before, after))
    trace = inspector.trace(IMAGE)
    expected = torch.zeros(16 + before + after, dtype=torch.float64)
    expected[list(tokens)] = 1 / len(tokens)
    assert trace.grid.prefix_names == tuple(names)
    assert_same(query_weights(trace), expected)
    assert_same(vitviz.rollout(trace), vitviz.rollout(trace, query="class" if len(tokens) == 1 else "auto"))
    assert "found by changing tokens after the last block" in inspector.describe()
    assert not [one for one in recwarn if issubclass(one.category, AssumedWarning)]


UNKNOWN_READOUTS = {
    "maximum": (lambda m, x: m.norm(x).amax(1), 0, 1, "mean over the patches"),
    "attention pooling": (
        lambda m, x: ((x @ m.query).softmax(-1)[..., None] * x).sum(1), 1, 0, "class token",
    ),
    "two tokens": (lambda m, x: x[:, 0] + x[:, -1], 1, 1, "class token"),
    "two tokens behind": (lambda m, x: x[:, -2] + x[:, -1], 0, 2, "mean over the patches"),
    "weighted mean": (
        lambda m, x: (x * torch.linspace(0, 1, 16)[:, None]).mean(1), 0, 0, "mean over the patches",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", UNKNOWN_READOUTS)
def test_unknown_readout_of_custom_module_is_warned_about(name):
    read, before, after, query = UNKNOWN_READOUTS[name]
    torch.manual_seed(0)
    with pytest.warns(AssumedWarning, match=f"query='auto' is assumed to be the {query}") as warned:
        inspector = inspect_module(ReadViT(read, before, after))
    assert warned[0].filename == __file__
    assert f"not known; query='auto' is assumed to be the {query}" in inspector.describe()
    trace = inspector.trace(IMAGE)
    assert_same(vitviz.rollout(trace), vitviz.rollout(trace, query=query.split()[0]))


def test_given_names_are_kept_where_another_token_is_read():
    torch.manual_seed(0)
    inspector = inspect_module(ReadViT(lambda m, x: x[:, -1], 1, 1), prefix=("class", "answer"))
    trace = inspector.trace(IMAGE)
    assert trace.grid.prefix_names == ("class", "answer")
    assert_same(vitviz.rollout(trace), vitviz.rollout(trace, query="answer"))
    assert not torch.equal(vitviz.rollout(trace), vitviz.rollout(trace, query="class"))


def test_readout_of_blocks_that_are_lists_is_found():
    torch.manual_seed(0)
    trace = inspect_module(ListViT()).trace(IMAGE)
    assert trace.pool == "average of all"


STACK = "stack the heads and call softmax once"
ADVICE = {"by hand": "write it with torch.softmax", "by head": STACK, "scores by head": STACK}


@pytest.mark.parametrize("way", ADVICE)
def test_other_softmax_is_rejected_with_advice(way):
    with pytest.raises(UnsupportedModel, match=ADVICE[way]):
        inspect_module(ListViT(way=way))


ORDERS = {"reversed": (2, 1, 0), "twice": (0, 1, 2, 0, 1, 2), "each twice": (0, 0, 1, 1, 2, 2)}


@pytest.mark.parametrize("order", ORDERS)
def test_blocks_in_other_order_are_rejected_with_reason(order):
    model = SequenceViT(blocks_of())
    calls = [model.blocks[number] for number in ORDERS[order]]

    def forward(x):
        for block in calls:
            x = block(x)
        return x

    model.blocks.forward = forward
    with pytest.raises(UnsupportedModel, match="call each block once, in order") as error:
        inspect_module(model)
    assert "blocks=" not in str(error.value)


class ActiveDropout(nn.Dropout):
    """Dropout that ignores evaluation mode."""

    def forward(self, x):
        return nn.functional.dropout(x, self.p)


class DroppedWeights(nn.Module):
    """An attention's softmax with active dropout on the weights."""

    def forward(self, scores):
        return nn.functional.dropout(scores.softmax(-1), 0.2)


def model_with_dropped_weights():
    model = SequenceViT(blocks_of())
    model.blocks[1].attention.attend = DroppedWeights()
    return model


class EarlyExit(SequenceViT):
    def forward(self, image):
        return self.head(self.blocks[:2](self.embed(image).flatten(2).mT).mean(dim=1))


class Padded(SequenceViT):
    def forward(self, image):
        return super().forward(nn.functional.pad(image, (0, 8, 0, 8)))


class Repeated(SequenceViT):
    def forward(self, image):
        x = self.embed(image).flatten(2).mT
        for _ in range(3):
            x = self.blocks[0](x)
        return self.head(x.mean(dim=1))


REASONS = {
    "active dropout": (model_with_dropped_weights, "block 2 has dropout in evaluation mode"),
    "early exit": (lambda: EarlyExit(blocks_of()), "block 3 has not run for this image"),
    "padding": (lambda: Padded(blocks_of()), "embeds 25 patches, of which 16 lie inside"),
    "block in a loop": (lambda: Repeated([nn.Sequential(Residual())]), "call each block once, in order"),
    "tied blocks": (lambda: SequenceViT([Residual()] * 3), "calls blocks.0 several times"),
}


@pytest.mark.parametrize("kind", REASONS)
def test_reason_of_rejection_names_what_was_seen(kind):
    build, reason = REASONS[kind]
    with pytest.raises(UnsupportedModel, match=reason):
        inspect_module(build())


def test_random_numbers_outside_attention_are_warned_about():
    model = SequenceViT([nn.Sequential(Residual(), ActiveDropout(0.1)) for _ in range(2)])
    with pytest.warns(AssumedWarning, match="draws random numbers in evaluation mode"):
        inspect_module(model)


class HalfPrecision(SequenceViT):
    """A model whose forward computes in bfloat16 by itself."""

    def forward(self, image):
        with torch.autocast("cpu", torch.bfloat16):
            return super().forward(image)


def test_autocast_inside_forward_is_followed():
    torch.manual_seed(0)
    model = HalfPrecision(blocks_of())
    trace = inspect_module(model).trace(IMAGE)
    weights = []
    for block in model.blocks:
        block.attention.attend.register_forward_hook(lambda part, args, output: weights.append(output[0]))
    with torch.no_grad():
        model(pixels_of(trace))
    for layer, expected in enumerate(weights):
        torch.testing.assert_close(trace.attention(layer), expected.float(), atol=0.01, rtol=0)


def test_gradient_maps_of_custom_module_are_rejected_with_reason():
    inspector = inspect_module(SequenceViT(blocks_of()))
    with pytest.raises(UnsupportedModel, match="only the attention and the tokens of this module are known"):
        vitviz.saliency(inspector, IMAGE, 0, "grad_cam")


def store_map(self, x, **others):
    """Compute timm's attention explicitly and keep its weights, as notebooks do."""
    q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)
    self.map = (q @ k.mT * self.scale).softmax(-1)
    return self.proj((self.map @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("way", ["method", "function"])
def test_replaced_forward_of_timm_attention_is_followed(way, recwarn):
    model = small_vit(img_size=32)
    expected = inspect_module(model).trace(IMAGE)
    for block in model.blocks:
        block.attn.forward = MethodType(store_map, block.attn)
        if way == "function":
            block.attn.forward = partial(store_map, block.attn)
    inspector = inspect_module(model)
    trace, in_place = inspector.trace(IMAGE), "used in place" in inspector.describe()
    for layer in range(2):
        assert_same(trace.attention(layer), expected.attention(layer))
    assert "The forward of blocks.0.attn was replaced" in inspector.describe()
    assert in_place == (way == "function") == any("used in place" in str(one.message) for one in recwarn)
    assert in_place or not hasattr(model.blocks[0].attn, "map")
