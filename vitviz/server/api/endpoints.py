"""Endpoints for programs: the page's results as JSON, for `gradio_client` and any other HTTP client.

Names, parameters and shapes are a stable interface (docs/api.md has an example of each); the page's own
listeners are private. A view without an endpoint of its own gets a derived one: parameters from its settings,
results from its items. Gradio's documentation is built from type hints and docstrings, so type hints must be
objects rather than strings: this file has no `from __future__ import annotations`. Layers and heads are
counted from 1, as on the page; patches from 0, row by row.
"""

import base64
import inspect
import logging
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import wraps
from typing import Any, Literal

import gradio as gr

from vitviz import analyses
from vitviz.analyses.faithfulness.ranking import verdict_text
from vitviz.engine.studies import attribution
from vitviz.errors import VitvizError, WrongSetting, quoted
from vitviz.server.api import checks, figures, videos
from vitviz.server.api.serialization import error_text, grid_json, parse_boolean, parse_whole, to_lists
from vitviz.server.security import request_context
from vitviz.server.security.scheduler import as_one_request
from vitviz.server.services.analysis_service import AnalysisService
from vitviz.traces.image_edits import ImageEdits
from vitviz.traces.runs import Ablation
from vitviz.traces.samples import samples
from vitviz.views import VIEWS, Choice, Control, IntSetting, Needs, Slider, View, ViewContext
from vitviz.views.availability import refusal
from vitviz.views.controls import DIFFERENCE, position_of_name
from vitviz.views.evidence.compute import upstream_sources
from vitviz.views.explorer import score
from vitviz.views.printing import PrintStyle
from vitviz.views.routes import item_array, parse_settings
from vitviz.views.shared import shared_distances
from vitviz.views.trial import ORDER, compute

log = logging.getLogger("vitviz")

ImageInput = gr.FileData | str
METHOD = Literal[("", *ORDER)]
TOLD = {  # descriptions of the parameters that an endpoint's own docstring does not describe
    "image": 'a file (handle_file), or the name of a sample such as "chelsea"',
    "checkpoint": "a name listed by `checkpoints`; empty for the first",
    "second": "name of a second checkpoint to compare with; empty for none",
    "without": "what is ablated, such as heads=8.2 patches=0.17 (layers and heads from 1); empty for nothing",
    "strokes": "edits of the image, applied first, such as brush.mean_60.100.80 rotate_10",
    "count": "number of classes, from 1",
    "layer": "from 1",
    "head": "from 1",
    "query": "a patch's number from 0, row by row, or a prefix token's name such as class",
    "token": "a prefix token's name such as class, or a patch's number from 0; empty for the middle",
    "target": 'a class, from 0; "top" for the likeliest; "7-3" for class 7 rather than 3',
    "view": "name of the view in links, such as patches, explorer, rollout or compared; any but tour",
    "settings": 'settings of the view, named as in the page\'s links, such as "fusion=max discard=0.9"',
    "detail": "include the details shown beside the figure",
    "language": "en, zh-CN or ko",
}


class Endpoints:
    """Endpoints of one AnalysisService. Errors are sentences for the caller."""

    def __init__(self, service: AnalysisService):
        self._service = service

    def predict(self, image: ImageInput, checkpoint: str = "", count: int = 5) -> dict:
        """Return the likeliest classes of an image.

        Returns:
            {checkpoint, dtype, head_type, top: [{label, probability}], or value for probability,
            input: [height, width] px, grid: {rows, cols, patch, prefix}}
        """
        trace = self._context(image, checkpoint).trace
        top = _top(trace, parse_whole(count, "count", 1, 100_000))
        details = {"head_type": trace.head_type, "top": top, "input": list(trace.grid.pixels)}
        return {**_origin(trace), **details, "grid": grid_json(trace.grid)}

    def rollout(
        self, image: ImageInput, checkpoint: str = "", query: str = "auto",
        fusion: Literal["mean", "max", "min"] = "mean", discard: float = 0.0, residual: float = 0.5,
        layers: str = "",
    ) -> dict:  # fmt: skip
        """Attention rollout: an estimate of how much of each patch reaches the query through all layers.

        Args:
            query: auto (what the classifier reads), mean, a prefix token's name, or a patch's number from 0
            fusion: how the heads are fused: mean, max or min
            discard: share of the smallest attention that is set to zero, from 0 to 0.99
            residual: weight of the skip connection, from 0 to 1
            layers: first and last layer counted from 1, such as "1-6"; empty for all

        Returns:
            {checkpoint, dtype, map: rows x cols, box: where the map lies on the upload (left, top, right,
            bottom px), grid}
        """
        given = {"query": query, "fusion": fusion, "discard": discard, "residual": residual, "layers": layers}
        view, subject, settings = self._parse("rollout", image, checkpoint, given)
        result = self._service.read(subject, lambda: view.item(subject, "map", settings))
        trace = subject.trace
        details = {"map": to_lists(result), "box": list(trace.view.box)}
        return {**_origin(trace), **details, "grid": grid_json(trace.grid)}

    def attention_distance(self, image: ImageInput, checkpoint: str = "", renormalise: bool = False) -> dict:
        """Return the mean attention distance of every head, in pixels of the model's input.

        Args:
            renormalise: divide each row by its attention on patches; the paper does not

        Returns:
            {checkpoint, dtype, distance: layers x heads px, prefix_mass: layers x heads, from 0 to 1,
            uniform: px of attention spread evenly, grid}
        """
        renormalise = parse_boolean(renormalise, "renormalise")
        subject = self._context(image, checkpoint)
        trace = subject.trace
        measured = self._service.read(subject, lambda: shared_distances(subject))
        distance = measured.renormalised if renormalise else measured.distance
        uniform = analyses.uniform_distance(trace.grid, renormalise, trace.kept)
        details = {"distance": distance, "prefix_mass": measured.prefix_mass, "uniform": uniform}
        details = {name: to_lists(values) for name, values in details.items()}
        return {**_origin(trace), **details, "grid": grid_json(trace.grid)}

    def patch_attention(
        self, image: ImageInput, checkpoint: str = "", layer: int = 1, head: int = 1, query: str = "0",
        direction: Literal["attends to", "attended by"] = "attends to",
    ) -> dict:  # fmt: skip
        """Return the attention from or to one token in one head.

        Args:
            direction: "attends to" is a row of the attention (1 in all); "attended by" a column

        Returns:
            {checkpoint, dtype, patches: rows x cols, prefix: {name: weight}, grid}
        """
        if direction not in ("attends to", "attended by"):
            raise WrongSetting(f"direction={quoted(direction)} is neither 'attends to' nor 'attended by'.")
        trace = self._context(image, checkpoint).trace
        layer = parse_whole(layer, "layer", 1, len(trace.layers))
        head = parse_whole(head, "head", 1, trace.layers[layer - 1].heads)
        query = str(query)  # Python converts no strings of thousands of digits
        token = int(query) if query.isdecimal() and len(query) < 10 else query
        of = analyses.attends_to if direction == "attends to" else analyses.attended_by
        weights, grid = of(trace, layer - 1, token)[head - 1].numpy(), trace.grid
        patches = to_lists(weights[grid.prefix :].reshape(grid.rows, grid.cols))
        prefix = dict(zip(grid.prefix_names, to_lists(weights[: grid.prefix]), strict=True))
        return {**_origin(trace), "patches": patches, "prefix": prefix, "grid": grid_json(grid)}

    def filters(self, checkpoint: str = "", count: int = 28) -> dict:
        """Return the principal components of the patch embedding's filters, sorted by variance.

        Args:
            count: number of components, from 1

        Returns:
            {checkpoint, pictures: count x P x P x 3 of unit norm, not scaled for display, variance: count
            shares of the whole}
        """
        inspector = self._inspector(checkpoint)
        components = attribution.embedding_filters(inspector, parse_whole(count, "count", 1, 100_000))
        details = {"pictures": to_lists(components.pictures), "variance": to_lists(components.variance)}
        return {"checkpoint": inspector.checkpoint.name, **details}

    def position_similarity(self, checkpoint: str = "", patch: int | None = None) -> dict:
        """Return cosines between the patches' position embeddings, at the checkpoint's own input size.

        Args:
            patch: a patch's number from 0, row by row, for its similarities alone; none for all patches

        Returns:
            {checkpoint, similarity: rows x cols x rows x cols, or rows x cols of the one patch, from -1 to 1}
        """
        inspector = self._inspector(checkpoint)
        similarity = attribution.position_similarity(inspector)
        if patch is not None:
            rows, cols = similarity.shape[:2]
            similarity = similarity[divmod(parse_whole(patch, "patch", 0, rows * cols - 1), cols)]
        return {"checkpoint": inspector.checkpoint.name, "similarity": to_lists(similarity)}

    def without(self, image: ImageInput, without: str, checkpoint: str = "", count: int = 5) -> dict:
        """Return the prediction before and after heads, MLPs or patches are ablated.

        Args:
            without: such as "heads=8.2_1.1 mlps=3 patches=0.17 heads_as=zero"; layers and heads from 1

        Returns:
            {checkpoint, dtype, without, before: [{label, probability}], after: [{label, probability}]},
            or value for probability
        """
        count, ablation = parse_whole(count, "count", 1, 100_000), Ablation.parse(str(without))
        name = self._checkpoint_name(checkpoint)
        before, after = self._context(image, name).trace, self._context(image, name, ablation.text()).trace
        details = {"before": _top(before, count), "after": _top(after, count)}
        return {**_origin(after), "without": ablation.text(), **details}

    def lens(
        self, image: ImageInput, checkpoint: str = "", target: int = -1, form: Literal["now", "share"] = "now"
    ) -> dict:
        """Logit lens: the logit of a class read from the tokens of every depth, from the input of layer 1
        to the output.

        Args:
            target: a class, from 0; -1 for the likeliest
            form: "now" norms the tokens afresh; "share" holds the final norm, and adds up to the logit

        Returns:
            {checkpoint, dtype, target, logits: by depth, depth 0 entering block 1}
        """
        subject = self._context(image, checkpoint)
        if subject.trace.logits is None:
            raise WrongSetting(f"{subject.checkpoint} has no classifier, so the logit lens does not apply.")
        asked = parse_whole(target, "target", -1, subject.trace.logits.numel() - 1)
        asked = int(subject.trace.logits.argmax()) if asked < 0 else asked
        with self._service.work.reading(subject):
            logits = attribution.logit_lens(subject.inspector, subject.trace, form=str(form))[:, asked]
        return {**_origin(subject.trace), "target": asked, "logits": to_lists(logits)}

    def writers(
        self, image: ImageInput, checkpoint: str = "", layer: int = 1, head: int = 1, target: str = "top",
        via: str = "",
    ) -> dict:  # fmt: skip
        """Split a head's contribution to a logit by the upstream components that its values come from.

        Args:
            via: heads between this head and the logit, the one next to the logit first, such as "8.2-7.1"

        Returns:
            {checkpoint, dtype, share, total, writers: [{kind, layer, head, logits}], layers and heads from 1}
        """
        given = {"target": target, "trail": f"{via}-{layer}.{head}" if via else f"{layer}.{head}"}
        view, subject, settings = self._parse("evidence", image, checkpoint, given)
        if reason := refusal(view, subject):
            return {"checkpoint": subject.checkpoint, "not_applicable": str(reason)}
        result = self._service.read(subject, lambda: upstream_sources(subject, settings))
        lines = [{**_writer(writer), "logits": to_lists(part)} for writer, part in result.lines()]
        return {**_origin(subject.trace), "share": result.share, "total": result.total, "writers": lines}

    def score_account(
        self, image: ImageInput, checkpoint: str = "", layer: int = 1, head: int = 1, query: str = "0",
        key: str = "auto", against: str = "mean",
    ) -> dict:  # fmt: skip
        """Split one attention score (before softmax) by the components that wrote its query and its key.

        Args:
            key: likewise; auto for the key of the largest weight
            against: the key whose score is subtracted in `relative`; mean for the mean over all keys

        Returns:
            {checkpoint, dtype, tokens: [query, key, ...], score, total, rest: a relative bias,
            writers: [{kind, layer, head}], matrix: writers x writers, relative: the same less the other
            key's, relative_rest, content_position: 2 x 2 of it, or none}
        """
        given = {"layer": layer, "head": head, "key": key, "against": against}
        given["token"] = position_of_name(str(query), self._context(image, checkpoint).grid)
        view, subject, settings = self._parse("explorer", image, checkpoint, given)
        result = self._service.read(subject, lambda: score.score_decomposition(view, subject, settings))
        (attributed, tokens), four = result, result[0].content_position
        names = ("score", "total", "rest", "matrix", "relative", "relative_rest")
        details = {name: to_lists(getattr(attributed, name)) for name in names}
        details |= {"writers": [_writer(writer) for writer in attributed.writers], "tokens": tokens}
        details["content_position"] = None if four is None else to_lists(four)
        return {**_origin(subject.trace), **details}

    def figure(
        self, image: ImageInput, view: str = "rollout", checkpoint: str = "", settings: str = "",
        format: Literal["svg", "pdf", "png"] = "svg", width: int | None = None,
        dpi: Literal[150, 300, 600] = 300, detail: bool = False,
        language: Literal["en", "zh-CN", "ko"] = "en", without: str = "", second: str = "",
        strokes: str = "",
    ) -> dict:  # fmt: skip
        """Export a view's figure, as vectors or as pixels of a given width.

        Args:
            format: svg, pdf or png
            width: mm, from 40 to 400; none for the natural width
            dpi: of a png: 150, 300 or 600
            second: the checkpoint beside it, for what is of two; empty for none

        Returns:
            {checkpoint, view, name: the file's, caption: text, data: the file in base64}
        """
        if str(second).strip():
            asked = self._service.view(str(view))
            if not (asked.scope.paired or asked.scope.sided):
                raise WrongSetting(f"{asked.title} is of one checkpoint; leave second empty.")
        key = self._key(image, checkpoint, without, strokes, second)
        look = PrintStyle(parse_boolean(detail, "detail"), language=str(language))
        made = figures.figure(self._service, key, str(view), figures.settings_of(str(settings)), look)
        dpi = parse_whole(dpi, "dpi", 1, 10_000)
        data = figures.write_figure(self._service, made, str(format), width, dpi)
        return self._file_json(key, view, f"{made.name}.{format}", made.caption, data)

    def film(
        self, image: ImageInput, view: str = "rollout", checkpoint: str = "", settings: str = "",
        over: Literal["training", "layers"] = "training", format: Literal["mp4", "gif"] = "mp4",
        width: int = 960, seconds: float = 0.8, detail: bool = False,
        language: Literal["en", "zh-CN", "ko"] = "en", without: str = "", strokes: str = "",
    ) -> dict:  # fmt: skip
        """Export a view's figure as a video over the training steps or over the layers, with one fixed scale.

        Args:
            over: training, where snapshots were kept; layers for rollout, evidence, tokens or explorer
            format: mp4 or gif
            width: pixels, even, from 320 to 1280
            seconds: for each frame, 0.1 to 5; the last stands three times as long

        Returns:
            {checkpoint, view, name: the file's, caption: text, frames: their labels, data: in base64}
        """
        pixels = parse_whole(width, "width", 1, videos.WIDE)
        videos.require_video_format(str(format), pixels, seconds)
        key = self._key(image, checkpoint, without, strokes)
        look = PrintStyle(parse_boolean(detail, "detail"), language=str(language))
        given = figures.settings_of(str(settings))
        made = videos.page_video(self._service, key, str(view), given, str(over), look)
        data = videos.encode_video(self._service, made, str(format), pixels, seconds)
        details = self._file_json(key, view, f"{made.name}.{format}", made.caption, data)
        return {**details, "frames": [str(label) for label in made.labels]}

    def trial(
        self, image: ImageInput, checkpoint: str = "", target: str = "top",
        patches_as: Literal["dropped", "mean", "blur", "black"] = "dropped",
        score: Literal["", "probability", "logit", "kept"] = "", method: METHOD = "",
        steps: Literal["auto", "32", "128", "512"] = "auto",
    ) -> dict:  # fmt: skip
        """Faithfulness of saliency maps: patches are removed in each map's order and the model is run again.

        Args:
            patches_as: how patches are removed: dropped from the sequence, or painted over
            score: the metric of ranking and verdict; empty for the probability, or the value
            method: one alone, beside the random maps; empty for all
            steps: of integrated gradients; auto doubles them until the map is stable

        Returns:
            {checkpoint, dtype, target, patches_as, shares, verdict, chance: [mean gap, deviation, reach],
            rows: [{method, areas: [most, least relevant first], gap, saco, beats, unexplained, steps,
            change, converged}], maps: {method: rows x cols}, curves: {method: {most, least}}, refused:
            {method: why}, grid}
        """
        given = {"target": target, "patches_as": patches_as, "method": method, "steps": steps}
        given |= {"score": score} if score else {}
        view, subject, settings = self._parse("trial", image, checkpoint, given)
        if reason := refusal(view, subject):
            return {"checkpoint": subject.checkpoint, "not_applicable": str(reason)}
        score, result = settings["score"], view.results(subject, settings, alone=bool(settings["method"]))
        details = compute.ranking_json(result, score)
        curves = {name: (curve.most[score], curve.least[score]) for name, curve in result.curves.items()}
        return {
            **_origin(subject.trace),
            "target": list(result.classes), "patches_as": result.patches_as, "shares": list(result.shares),
            "verdict": str(verdict_text(result, score)),
            "chance": [*details["chance"], details["reach"]], "rows": details["rows"],
            "maps": {name: to_lists(saliency.map) for name, saliency in result.maps.items()},
            "curves": {name: dict(zip(("most", "least"), map(to_lists, sides), strict=True))
                       for name, sides in curves.items()},
            "refused": {name: str(reason) for name, reason in result.refused.items()},
            "grid": grid_json(subject.grid),
        }  # fmt: skip

    def check(self, checkpoint: str = "", images: list | None = None) -> dict:  # of each streamed result
        """Check a model for faults that make maps and predictions wrong. Every result holds all findings so
        far; the last one is complete.

        Args:
            images: files (handle_file), of which up to 8 are used; none for the samples

        Returns:
            {checkpoint, images: their number, share: of the checks that are done, findings: [{name, group,
            severity: serious, note or number, sentence, number, threshold, source, advice, view}]}
        """
        service, name = self._service, self._checkpoint_name(checkpoint)
        key = service.runs.known(service.pictures.sample(samples()[0].name), name)
        given = service.sets.give([_path(image) for image in images]) if images else ""
        findings, place = [], 0
        while place is not None:
            step = service.checks.step(key, given, place)
            findings += map(checks.finding_json, checks.public(step.findings))
            place = step.next
            yield {"checkpoint": name, "images": step.images, "share": step.share, "findings": [*findings]}

    def checkpoints(self) -> list:
        """Return the available checkpoints, those on this server first.

        Returns:
            a list of {name, architecture, source, input_size: [channels, height, width], trained_on, licence,
            paper, note, on_disk}
        """
        # without the path on the server
        fields = "name architecture source input_size trained_on licence paper note on_disk".split()
        every = self._service.checkpoints.selectable()
        return [{name: getattr(one, name) for name in fields} for one in every]

    def _file_json(self, key: str, view: str, name: str, caption: str, data: bytes) -> dict:
        """Return a file as JSON: checkpoint, view, name, caption, and the data in base64."""
        about = {"checkpoint": self._service.runs.run(key).checkpoint, "view": str(view), "name": name}
        return {**about, "caption": caption, "data": base64.b64encode(data).decode("ascii")}

    def _parse(self, slug: str, image: Any, checkpoint: str, given: dict) -> tuple[View, ViewContext, dict]:
        """Return the view of a slug, the image's context, and the settings parsed from `given`."""
        view, subject = self._service.view(slug), self._context(image, checkpoint)
        texts = {name: str(one) for name, one in given.items()}
        return view, subject, parse_settings(view, texts, subject.about)

    def _inspector(self, checkpoint: str):
        """Return the loaded model of a checkpoint's name; '' stands for the service's default."""
        return self._service.checkpoints.inspector(self._checkpoint_name(checkpoint))

    def _checkpoint_name(self, checkpoint: str) -> str:
        """Return a checkpoint's name without surrounding spaces; the service's default for ''."""
        return str(checkpoint).strip() or self._service.settings.checkpoint

    def _context(self, image: Any, checkpoint: str, without: str = "") -> ViewContext:
        """Return the view context of an image under a checkpoint; `without` is an ablation as text."""
        return self._service.subject(self._key(image, checkpoint, without))

    def _key(
        self, image: Any, checkpoint: str, without: str = "", strokes: str = "", second: str = ""
    ) -> str:
        """Trace an edited image under a checkpoint and a `second`; return the key of the run or pair."""
        changes = {"without": Ablation.parse(str(without)), "strokes": ImageEdits.parse(str(strokes))}
        picture, beside = self._image_key(image), str(second).strip()
        key = self._service.look(picture, self._checkpoint_name(checkpoint), **changes)
        return self._service.runs.pair(key, self._service.look(picture, beside, **changes)) if beside else key

    def _image_key(self, image: Any) -> str:
        """Store a sample (by its name, never by a path) or an upload; return the image's key."""
        if isinstance(image, str):
            return self._service.pictures.sample(image)
        return self._service.pictures.add_upload(_path(image))


def _path(image: Any) -> Any:
    """Return the unchecked path in an upload's dict or object; None if it has none."""
    return image.get("path") if isinstance(image, dict) else getattr(image, "path", None)


PUBLIC = tuple(name for name in vars(Endpoints) if not name.startswith("_"))


def _top(trace: Any, count: int) -> list[dict[str, Any]]:
    """Return the `count` likeliest classes of a trace, each with its label and its score."""
    return [{"label": label, trace.quantity: to_lists(score)} for label, score in trace.top(count)]


def _writer(writer: Any) -> dict[str, Any]:
    """Return an upstream component as JSON, layer and head from 1."""
    kind, *place = writer
    layer, head = (None if one is None else one + 1 for one in place)
    return {"kind": kind, "layer": layer, "head": head}


def _origin(trace: Any) -> dict[str, str]:
    """Return the checkpoint's name and the dtype in which the model computed."""
    return {"checkpoint": trace.checkpoint, "dtype": trace.dtype}


def views_with_endpoints() -> tuple[View, ...]:
    """Return the views with exported items and no endpoint of their own; theirs are derived."""
    others = (view for view in VIEWS if view.export.endpoint is None)
    return tuple(view for view in others if any(item.in_export for item in view.items))


def endpoint(view: View, endpoints: Endpoints) -> Callable:
    """Return the function of a view's derived endpoint, with signature and docstring for Gradio."""
    items_exported = [item for item in view.items if item.in_export and not item.of_image]
    asked = {name for item in items_exported for name in item.depends} - {DIFFERENCE.name}
    controls = [control for control in view.controls if control.name in asked]
    tokens = {control.name for control in controls if isinstance(control, IntSetting) and control.tokens}

    def answer(*given, **named) -> dict:
        values = signature.bind(*given, **named)
        values.apply_defaults()
        values = values.arguments
        chosen = {control.name: values.pop(control.name) for control in controls}
        if of_picture:
            subject = endpoints._context(**values)
        elif view.scope.paired:  # a set does not depend on the image, so any key works
            subject = endpoints._service.subject(endpoints._key(samples()[0].name, **values))
        else:
            subject = ViewContext(endpoints._inspector(**values))
        for name in chosen.keys() & tokens:
            given_token = "" if chosen[name] is None else str(chosen[name])  # a program may send the number 0
            chosen[name] = position_of_name(given_token, subject.grid) if given_token else None
        chosen = {name: str(one) for name, one in chosen.items() if one is not None}
        settings = parse_settings(view, chosen, subject.about)
        if reason := refusal(view, subject):
            return {"checkpoint": subject.checkpoint, "not_applicable": str(reason)}
        with endpoints._service.work.reading(subject):
            arrays = {item.name: item_array(view, subject, item.name, settings) for item in items_exported}
            numbers = {name: to_lists(array) for name, array in arrays.items()}
        precision = {} if subject.trace is None else {"dtype": subject.trace.dtype}
        return {"checkpoint": subject.checkpoint, **precision, **numbers, "grid": grid_json(subject.grid)}

    of_picture = view.needs not in (Needs.WEIGHTS, Needs.SET)
    parameters = [_parameter("image", ImageInput)] if of_picture else []
    parameters.append(_parameter("checkpoint", str, ""))
    parameters += [_parameter("second", str, "")] if view.scope.paired else []
    parameters += [_setting_parameter(control) for control in controls]
    parameters += [_parameter("without", str, "")] if of_picture else []
    signature = inspect.Signature(parameters, return_annotation=dict)
    answer.__signature__, answer.__name__ = signature, view.slug
    answer.__annotations__ = {one.name: one.annotation for one in parameters} | {"return": dict}
    described = (control for control in controls if control.name != "token")
    details = [f"    {one.name}: {one.info or one.label or one.name}\n" for one in described]
    axes = {item.name: " x ".join(item.axes.split()) for item in items_exported}
    items = ", ".join(f"{item.name}: {axes[item.name]}, {item.description}" for item in items_exported)
    args, returns = f"Args:\n{''.join(details)}", f"Returns:\n    {{checkpoint, dtype, {items}; grid}}"
    answer.__doc__ = f"{view.words.what}\n\n{args}\n{returns}"
    return answer


def _setting_parameter(control: Control) -> inspect.Parameter:
    """Return the parameter of a derived endpoint for a setting, with type and default of its control."""
    kind, default = str, control.start()
    if isinstance(control, Choice):
        kind = Literal[tuple(value for value, _ in control.options)]
    elif isinstance(control, IntSetting) and control.tokens:
        default = ""
    elif isinstance(control, Slider | IntSetting):
        kind = int if isinstance(control, IntSetting) or float(control.step).is_integer() else float
        if default == "":
            kind, default = kind | None, None
    return _parameter(control.name, kind, default)


def _parameter(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    """Return a parameter of a derived endpoint's signature; it is required if `default` is missing."""
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=default, annotation=kind)


def add_endpoints(service: AnalysisService) -> None:
    """Add the endpoints to the page that is being built."""
    endpoints = Endpoints(service)
    made = (endpoint(view, endpoints) for view in views_with_endpoints())
    for one in (*(getattr(endpoints, name) for name in PUBLIC), *made):
        gr.api(_documented(_as_gradio_error(one, service.work.request_turn)), api_name=one.__name__)


def _as_gradio_error(fn: Callable, turn: Callable[[], AbstractContextManager] = nullcontext) -> Callable:
    """Wrap an endpoint to run within a scheduler turn and to raise `gr.Error` for the caller.

    VitvizError's text reaches the caller; any other exception is logged. Every result of a stream is computed
    like a request of its own.
    """
    if inspect.isgeneratorfunction(fn):

        @wraps(fn)
        def stream(*given, **named):
            steps = fn(*given, **named)
            following = _as_gradio_error(lambda: next(steps, None), turn)
            yield from iter(following, None)

        return stream

    @wraps(fn)
    def answer(*given, **named):
        try:
            with request_context.bind_request(request_context.direct_request()), as_one_request(), turn():
                return fn(*given, **named)
        except Exception as error:  # the caller would otherwise get "error: null"
            if not isinstance(error, VitvizError):
                log.exception("An endpoint failed")
            raise gr.Error(error_text(error), print_exception=False) from error

    return answer


def _documented(fn: Callable) -> Callable:
    """Add a line for each parameter to an endpoint's docstring, which Gradio publishes."""
    what, args, returns = re.match(r"(.*?)(?:Args:\n(.*?))?(Returns:.*)", inspect.getdoc(fn), re.S).groups()
    own = dict(line.strip().split(": ", 1) for line in (args or "").strip().splitlines())
    lines = [f"    {name}: {own.get(name) or TOLD[name]}\n" for name in inspect.signature(fn).parameters]
    fn.__doc__ = f"{what}Args:\n{''.join(lines)}\n{returns}"
    return fn
