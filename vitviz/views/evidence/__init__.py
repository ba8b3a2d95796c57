"""Attribution: decomposition of one logit into contributions that sum to it, and the logit lens by depth."""

from dataclasses import replace
from typing import Any

import numpy as np

from vitviz.analyses.protocol import DENSE, TITLES
from vitviz.charts.chart import Chart, to_json
from vitviz.errors import VitvizError
from vitviz.traces.localized_text import LocalizedText, message_of, text_to_json
from vitviz.views.base import PAPER, Item, View, ViewTexts, as_json, chart_item, drawing_item
from vitviz.views.controls import (
    DIFFERENCE,
    Choice,
    Control,
    IntListSetting,
    IntSetting,
    ModelShape,
    Slider,
    Text,
)
from vitviz.views.evidence import charts, compute, graph, sentences, sufficiency, truth
from vitviz.views.parts import ExportDefaults, FrameSettings, Scope, VideoDefaults
from vitviz.views.printing import growing_frames
from vitviz.views.shared import WHOLE, json_bytes, likeliest_classes, shared_logit_terms
from vitviz.views.subject import Settings, ViewContext

ONE_MAP = "Only logit attribution can be shown layer by layer; other methods' maps cover all layers."
_ASKED = ("target", "relative")
_CHANGED = (*_ASKED, "difference")  # `compute.account` subtracts the original image
_MAPPED = (*_ASKED, "method", "chosen", "until")
_TRAIL = (*_ASKED, "chosen", "trail")
_TRUTH = (("show", "writers"), ("beside", "truth"))
MAPS = tuple(  # fast methods; `vitviz.METHODS` lists all
    (name, TITLES[name])
    for name in TITLES
    if name not in ("attention_grad_cam", "integrated_gradients", "leave_one_out", "random", "centre")
)
PATCHWISE = tuple((name, TITLES[name]) for name in DENSE)
_COMPUTE = {  # item -> function of subject and settings
    "own": compute.target_by_patch,
    "best": compute.likeliest_by_patch,
    "effects": compute.layer_effects,
    "agreement": compute.agreement,
    "change": compute.prediction_change,
    "writer_map": compute.writer_map,
    "truth": truth.item,
    "trail": compute.trail_json,
    "writer_heads": lambda *args: compute.upstream_sources(*args).heads.numpy(),
    "likeliest": sentences.likeliest_by_patch,
    "legend": lambda *args: json_bytes(to_json(sentences.legend_entries(*args))),
}
CHARTS = {  # beside the map, except for direct attribution
    "forming": charts.lens_chart,
    "effects": charts.effects_chart,
    "writers": charts.upstream_chart,
    "paths": graph.chart,
    "smallest": sufficiency.chart,
}
ARRAYS = {  # exported numbers of the panel beside the map
    "writers": compute.writer_arrays,
    "paths": graph.arrays,
    "smallest": sufficiency.arrays,
    "sentences": sentences.arrays,
}
SHOWN = (  # panels beside the map
    ("account", "Logit attribution"),
    ("forming", "Logit lens"),
    ("effects", "Component ablation"),
    ("writers", "Upstream sources"),
    ("paths", "Largest paths"),
    ("smallest", "Sufficient edges"),
    ("sentences", "Most likely class of each patch"),
)
_EXPLAINED = {"show": tuple(name for name, _ in SHOWN if name != "sentences"), "difference": ("on",)}
_LIKELIEST = {"show": ("sentences",)}
EXTRA_TEXTS = (*compute.ONE_ONLY.values(), *(text for _, text in (*truth.INTO, *truth.PARTS_AS)))


def _offered_controls(controls: tuple[Control, ...], subject: ViewContext) -> tuple[Control, ...]:
    """Return the controls without panels, fields and options that do not suit the classifier."""
    trace, has_classes, offered = subject.trace, sentences.has_several_classes(subject), []
    values = trace is not None and trace.head_type == "value"  # no predicted class
    fits = {"sentences": has_classes, "smallest": not values}
    for control in controls:
        if control.name == "show":
            control = replace(control, options=tuple(option for option in SHOWN if fits.get(option[0], True)))
        if control.name == "relative" and not compute.compares_with_mean(trace):
            control = replace(control, label="", options=control.options[:1])  # no field
        if has_classes or control.only is not _LIKELIEST:
            offered.append(control)
    return tuple(offered)


def _exported_values(subject: ViewContext, name: str) -> tuple[str, ...]:
    """Return the values of the setting `name` to export, as texts; () for settings without such a list.

    Layers and heads count from 1; () for settings with other values.
    """
    layers = range(1, subject.about.layers + 1)
    ends = ("", "embedding", "positions", "constant")
    heads = [f".{head}" for head in range(1, subject.about.heads + 1)]
    return {
        "chosen": ("", *(f"{layer}{head}" for layer in layers for head in ("", *heads))),
        "trail": ("", *(f"{layer}{head}" for layer in layers for head in heads)),
        "writer": (*ends, *(f"{kind}.{layer}" for kind in ("mlp", "bias") for layer in layers)),
        "patches": ("", *map(str, range(subject.grid.patches))),
        "target": ("top", *map(str, compute.likeliest(subject))),
    }.get(name, ())


def _layer_frames(settings: Settings, about: ModelShape) -> FrameSettings:
    """Return the frames of a video whose map adds the heads of one layer per frame.

    Raise VitvizError for maps of other methods and for the classes of the patches.
    """
    if settings["method"] != "ledger" or settings["show"] == "sentences":
        raise VitvizError(LocalizedText(ONE_MAP))
    unselected = {**settings, "chosen": "", "patches": ()}
    return growing_frames(1, about.layers, lambda last: {**unselected, "until": last})


class AttributionView(View):
    title = "Attribution"
    words = ViewTexts.read(__file__, cites=PAPER)
    scope = Scope(offered=_offered_controls)
    controls = (
        Text("target", default="top", fits=r"top|\d{1,5}(-\d{1,5})?", classes=True),
        Choice(
            "relative", "Logit", options=(("no", "Absolute"), ("yes", "Relative to the mean class")),
            advanced=True,
        ),
        Choice("method", "Method", options=MAPS, only=_EXPLAINED),
        Choice("show", "Panel", options=SHOWN),
        Choice("patchwise", "Patch scores", options=PATCHWISE, default="naclip", only=_LIKELIEST),
        Slider("least", "Minimum cosine", minimum=-1, step=0.01, default=-1, only=_LIKELIEST),
        Slider("paths", "Paths", minimum=1, maximum=graph.MOST, default=12, only={"show": ("paths",)}),
        Slider("depth", "Depth", maximum="layers", default="layers", only={"show": ("forming",)}),
        Choice("part", options=(("heads", "Heads"), ("mlps", "MLPs"))),  # components whose effects are shown
        IntSetting("layer", minimum=1, maximum="layers", default=1),  # first layer with ablated components
        Text("chosen", fits=r"|\d{1,3}(\.\d{1,3})?"),  # a layer's heads, or one head, both from 1
        Text("trail", fits=compute.TRAIL),  # heads from the output back, from 1; the last one is decomposed
        Choice("beside", options=(("heads", "Every earlier head"), ("truth", "Check by edge ablation"))),
        Choice("into", options=truth.INTO),  # input of the head from which a source is removed
        Choice("parts_as", options=truth.PARTS_AS),
        Text("writer", fits=compute.WRITER),  # source whose contribution is mapped, layers and heads from 1
        IntSetting("until", maximum="layers"),  # map the heads up to this layer, from 1; 0 for all
        IntSetting("tried", minimum=1, maximum=sufficiency.STEPS, default=sufficiency.STEPS, passing=True),
        IntListSetting("patches", maximum="patches", most=400),  # contributions per head count only these
        DIFFERENCE,
    )  # fmt: skip
    items = (
        Item(
            "map", "row col", "head contributions by source patch, logits", depends=(*_MAPPED, "difference"),
            signed=True,
        ),
        Item(
            "explained", "line", "what the map explains, and leaves unexplained",
            depends=("target", "method", "difference"),
        ),
        Item(
            "heads", "layer head", "each head's contribution, logits",
            depends=(*_ASKED, "patches", "difference"),
        ),
        Item("mlps", "layer", "each MLP's contribution, logits", depends=_CHANGED),
        Item("biases", "layer", "each projection bias, logits", depends=_CHANGED),
        Item(
            "lines", "line",
            "start, pooling, norm bias, classifier bias, logit, sum; for differences also the norm",
            depends=_CHANGED,
        ),
        Item("sources", "group", "heads' contributions from patches and each prefix token", depends=_CHANGED),
        drawing_item("forming", "depth class", "probability, or value, by depth, norm afresh"),
        drawing_item("share", "depth", "share of the target so far, logits", *_ASKED),
        drawing_item("own", "row col", "each patch's own answer", "target", "depth"),
        drawing_item("best", "row col rank pair", "classes and probabilities, or values", "depth"),
        drawing_item(
            "effects", "part",
            "what goes when each head of a layer, then its MLP, is taken away alone, logits", *_ASKED,
            "layer",
        ),
        drawing_item("direct", "layer head", "each head's share, of all patches", *_CHANGED),
        drawing_item("agreement", "kind", "shares and effects", *_ASKED),
        drawing_item("writer_map", "row col", "a writer's part, logits", *_TRAIL, "writer"),
        drawing_item("writer_heads", "layer head", "each head's part, logits", *_TRAIL),
        as_json(
            "truth", "shares and effects of edges", *_TRAIL, "into", "parts_as", "tried", only_when=_TRUTH,
        ),
        as_json("trail", "the heads that are followed", *_TRAIL),
        drawing_item("likeliest", "row col pair", "each patch's likeliest class and its cosine", "patchwise"),
        as_json("legend", "the colours of the classes", "patchwise"),
        as_json("classes", "the likeliest classes"),
        as_json("change", "the prediction before the change and after", "target"),
        as_json("labels", "all classes"),
        chart_item(*_TRAIL, "show", "part", "layer", "paths", "tried", "difference"),
    )  # fmt: skip
    export = ExportDefaults(
        arrays={
            "written_by_heads": "layer head",
            "written_by_layers": "kind layer",  # biases, MLPs
            "written_otherwise": "line",  # contribution, sum, embedding, positions, constant
            "edge_writers": "edge",  # sources of edges into the selected head, layers and heads from 1
            "edge_lines": "edge",  # contribution of the source
            "edge_effects": "edge",
            "paths": "path",  # components along each path, up to the output, from 1
            "path_shares": "path",
            "path_sums": "line",  # total of all heads, total of unlisted paths, chains of heads opened
            "path_bound": "line",  # bound on unlisted paths; 1 if the listed ones are proven largest, else 0
            "edges_kept": "count",
            "margins": "order count",  # by largest contribution, then in random orders
            "edge_shares": "edge",
            "likeliest": "row col",  # class of the largest cosine of each patch, -1 for none
            "cosines": "row col",
            "class_names": "class",
            "target": "",
            "line_names": "line",
            "by_source": "layer head token",
            "effects_of_heads": "layer head",
            "effects_of_mlps": "layer",
            "correlations": "line",  # of effects and contributions: over heads, over MLPs
        },
        values=_exported_values,
        video=VideoDefaults(frames=_layer_frames),
    )

    def chart(self, subject: ViewContext, settings: Settings) -> Chart:
        """Return the chart beside the map; effects of ablated components cover the layers from `layer` on."""
        show = "account" if settings["difference"] == "on" else settings["show"]
        return CHARTS.get(show, charts.waterfall_chart)(self, subject, settings)

    def unsupported(self, subject: ViewContext) -> str | None:
        """Return the reason why the view does not apply (no classifier, inexact sum); None if it applies."""
        if subject.trace.logits is None:
            return LocalizedText(
                "{checkpoint} has no classifier, so there is no logit to attribute.",
                checkpoint=subject.checkpoint,
            )
        try:
            shared_logit_terms(subject)
        except VitvizError as error:
            return LocalizedText(
                "No logit attribution for this prediction: {reason}", reason=message_of(error)
            )
        return None

    def summary(self, subject: ViewContext) -> dict[str, Any]:
        """Return the top classes, prefix tokens and kind of patch predictions, for the script.

        "refusal" says why panels that need the full model are refused; None if it is intact.
        """
        classes = subject.trace.classes
        return {
            "top": compute.likeliest(subject),
            "prefix": list(subject.grid.prefix_names),
            "patches": compute.patch_prediction_kind(subject),
            "refusal": text_to_json(LocalizedText(WHOLE))
            if subject.trace.without
            else None,  # reason against panels that compute in steps
            **({} if classes is None else {"scale": classes.scale, "bias": classes.bias}),
        }

    def item(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """Return an item by name: contributions to the target's logit, maps, lens or JSON bytes.

        If "difference" is on, the original image's contributions are subtracted.
        """
        trace = subject.trace
        if name in _COMPUTE:
            return _COMPUTE[name](subject, settings)
        if name in ("classes", "labels"):
            return json_bytes(
                likeliest_classes(trace, compute.SHOWN) if name == "classes" else list(trace.labels)
            )
        if name == "forming":
            return trace.scores(compute.lens_of_input(subject, "now"))[:, compute.likeliest(subject)].numpy()
        if name == "share":
            return compute.target_column(
                subject, settings, compute.lens_of_input(subject, "share").double()
            ).numpy()
        account = compute.account(subject, settings)
        if name == "explained":
            if settings["method"] == "ledger":
                return np.asarray([account.total, account.gap])
            result = compute.saliency_of_target(subject, settings)
            return np.asarray([result.explained, result.unexplained], float)  # None is not a number
        if name == "map":
            if settings["method"] != "ledger":
                return compute.saliency_of_target(subject, settings).map.numpy()
            return compute.contribution_map(subject, settings)
        if name == "direct":
            return account.heads.numpy()
        if name == "heads":
            picked = [subject.grid.prefix + patch for patch in settings["patches"]]
            return (account.sources[..., picked].nansum(dim=-1) if picked else account.heads).numpy()
        if name == "lines":
            pool = 0.0 if account.pool is None else account.pool.total
            lines = (account.start, pool, account.norm_bias, account.head_bias, account.logit, account.total)
            return np.asarray((*lines, account.norm) if settings["difference"] == "on" else lines)
        if name == "sources":
            by_token = account.sources.double().sum(dim=(0, 1))
            prefix = subject.grid.prefix  # dropped patches are NaN and not in the sum
            return np.asarray([by_token[prefix:].nansum().item(), *by_token[:prefix].tolist()])
        return (account.mlps if name == "mlps" else account.projection_biases).numpy()

    def numbers(self, subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
        """Return the contributions and the arrays of the selected panel, for export, by name."""
        account, in_turn = compute.account(subject, settings), {}
        if settings["show"] == "effects" and not subject.trace.without:
            effects = compute.all_effects(subject, settings)
            in_turn = {
                "effects_of_heads": effects.heads.numpy(),
                "effects_of_mlps": effects.mlps.numpy(),
                "correlations": compute.agreement(subject, settings),
            }
        if settings["show"] in ARRAYS:
            in_turn = ARRAYS[settings["show"]](subject, settings)
        if all(settings[name] == value for name, value in _TRUTH):
            in_turn |= truth.arrays(subject, settings)
        return {
            **super().numbers(subject, settings),
            **in_turn,
            "target": np.asarray(compute.target(subject, settings)),
            "line_names": np.asarray("start pooling norm_bias head_bias logit total norm".split()),
            "by_source": account.sources.numpy(),  # layer head token
        }
