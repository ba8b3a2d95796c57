"""Faithfulness test: the relevance of patches by every method, and the prediction without these patches.

This view is separate from Attribution because it shows many maps and takes seconds, while Attribution shows
one map at once. The page requests one method after the other: curves appear as they are computed, the bar
shows the progress, and a visitor stops the test by requesting no further method.
"""

from dataclasses import replace
from typing import Any

import numpy as np

from vitviz.analyses.protocol import DENSE, TITLES, UNTRIED
from vitviz.charts.chart import Chart, to_json
from vitviz.errors import Unknown, quoted
from vitviz.traces.localized_text import LocalizedText
from vitviz.views import lazy
from vitviz.views.base import View, ViewTexts, as_json, chart_item
from vitviz.views.controls import Choice, Text
from vitviz.views.parts import ExportDefaults, File, Scope
from vitviz.views.shared import WHOLE, json_bytes, likeliest_classes, parse_target, to_csv
from vitviz.views.subject import Settings, ViewContext

OF_ONE = "This result exists for one image only, but an image set is shown."
OF_MANY = "This result exists for image sets only, but one image is shown."
SHOWN = 5  # most likely classes in the picker
PASSES = 400  # approximate cost of a whole test, in passes over all patches
BY_ITSELF = 400e9  # multiplications up to which the test starts by itself: seconds on two cores
_ASKED = ("target", "patches_as", "steps")
# order of the requests: random maps first, because the others are compared with them; expensive methods last
FIRST = ("random", "centre", "ledger", "frozen")
STEPPED = "integrated_gradients"
LAST = (STEPPED, "leave_one_out")
ORDER = (*FIRST, *(name for name in TITLES if name not in (*FIRST, *DENSE, *LAST)), *DENSE, *LAST)
TOGETHER = 3  # cheap methods whose sets of patches are run together: fewer passes with larger batches
EXTRA_TEXTS = (UNTRIED, *TITLES.values())


def method_group(method: str) -> tuple[str, ...]:
    """Return the saliency methods that are tested together with `method`, in order.

    Expensive methods and random maps are tested alone. Methods made for sentences form their own groups,
    because they do not apply to a model's own classes.

    >>> method_group("frozen"), method_group("leave_one_out")
    (('centre', 'ledger', 'frozen'), ('leave_one_out',))
    """
    default_methods = tuple(name for name in ORDER[1:] if name not in (*DENSE, *LAST))
    for cheap in (default_methods, DENSE):
        if method in cheap:
            start = cheap.index(method) // TOGETHER * TOGETHER
            return cheap[start : start + TOGETHER]
    return (method,)


def requested_steps(settings: Settings) -> int | None:
    """Return the number of steps of integrated gradients; None means doubled until the map is stable."""
    return None if settings["steps"] == "auto" else int(settings["steps"])


def tested_methods(subject: ViewContext) -> tuple[str, ...]:
    """Return the methods to test: without those for sentences if the classes are the model's own."""
    has_target = subject.survey is not None or subject.trace.classes is not None
    return tuple(name for name in ORDER if has_target or name not in DENSE)


def _is_available(subject: ViewContext, settings: Settings) -> bool:
    """Return True for a survey, or if the results of every method are cached."""
    if subject.survey is not None:
        return True
    target, protocol = parse_target(subject, settings["target"]), settings["patches_as"]
    keys = (
        lazy.trial_compute.part_key(target, protocol, method, requested_steps(settings))
        for method in tested_methods(subject)
    )
    return all(map(subject.made, keys))


def _skipped_items(subject: ViewContext) -> tuple[str, ...]:
    """Return the items not to request: those of one image for a survey, otherwise those of a survey."""
    if subject.survey is None:
        return ("standing", "chart")
    return ("classes", "tried", "panels", "verdict", "agreement")


def _table_csv(view: View, subject: ViewContext, settings: Settings, upload: Any) -> bytes:
    """Return the CSV table with a row per method, for one image or a survey."""
    if subject.survey is not None:
        return to_csv(lazy.trial_image_set.rows(subject.survey, settings))
    return lazy.trial_compute.result_csv(view.results(subject, settings))


class FaithfulnessView(View):
    title = "Faithfulness"
    scope = Scope(
        every_patch=True, float32_only=True, on_request=True, available=_is_available, averages=True,
        set_control="patches_as", most_images=300,
    )  # fmt: skip
    words = ViewTexts.read(__file__)
    controls = (
        Text("target", default="top", fits=r"top|\d{1,5}(-\d{1,5})?", classes=True),
        Choice(
            "patches_as", "Removed patches are",
            options=(
                ("dropped", "left out"), ("mean", "the model’s mean colour"), ("blur", "blurred"),
                ("black", "black"),
            ),
            info="Patches left out of the sequence are invisible to the model. Painted patches still"
            " enter it as colour.",
        ),
        Choice(
            "score", "Metric",
            options=(("probability", "Probability"), ("logit", "Logit"), ("kept", "Prediction kept")),
            of_values=(("logit", "Value"),),
        ),
        Choice(
            "show", "Panel",
            options=(("ranking", "Ranking"), ("maps", "All maps"), ("agreement", "Agreement")),
        ),
        Choice(
            "scale", "Colours of the maps", options=(("ranks", "Removal order"), ("values", "Values")),
            info="Maps have different units. The removal order is one scale for all maps. Values in"
            " logits share a scale; every other map has its own.",
            advanced=True,
        ),
        Choice(
            "steps", "Steps of integrated gradients",
            options=(("auto", "until the map is stable"), ("32", "32"), ("128", "128"), ("512", "512")),
            info="Each step computes a gradient at one point between the mean colour and the image.",
            advanced=True,
        ),
        Text("method", fits=r"[a-z0-9_]{0,40}"),  # selected or requested method
    )  # fmt: skip
    items = (
        as_json("classes", "the likeliest classes"),
        as_json("tried", "one method's trial", *_ASKED, "method"),
        as_json("panels", "curves so far", *_ASKED, "score", "method"),
        as_json("verdict", "trial of all methods, or up to one", *_ASKED, "score", "method"),
        as_json("agreement", "how alike maps are, and those of two classes", *_ASKED, "score"),
        as_json("standing", "where methods stand over a set", "patches_as", "score"),
        chart_item("patches_as", "score"),
    )  # fmt: skip
    export = ExportDefaults(
        arrays={
            **dict.fromkeys(("rank", "most", "most_error", "least", "least_error"), "method score"),
            **dict.fromkeys(("gap", "ahead", "ahead_error"), "method score"),
            "alike": "method",
            "pictures": "",
        },
        files=(File("trial.csv", "Table (CSV)", "text/csv", _table_csv),),
        endpoint="trial",
        skipped=_skipped_items,
    )

    def unsupported(self, subject: ViewContext) -> str | None:
        """Return why no test is possible (no classifier, removed parts, untested survey), else None."""
        if subject.survey is not None:
            return None if "trial.most" in subject.survey.sums else UNTRIED
        if subject.trace.logits is None:
            return LocalizedText(
                "{checkpoint} has no classifier, so there is no prediction to test maps on.",
                checkpoint=subject.checkpoint,
            )
        return LocalizedText(WHOLE) if subject.trace.without else None

    def chart(self, subject: ViewContext, settings: Settings) -> Chart | None:
        """Return, for a set of images, each method's lead over random maps; None for one image.

        The curves of one image are the item "panels", requested method by method.
        """
        return None if subject.survey is None else lazy.trial_image_set.lead_chart(subject.survey, settings)

    def summary(self, subject: ViewContext) -> dict[str, Any]:
        """Return the methods and the survey's number of images (None for one image), for JSON.

        For one image also the two top classes, and "starts": True if the test is cheap.
        """
        methods = [[name, TITLES[name]] for name in tested_methods(subject)]
        if subject.survey is not None:
            return {"methods": methods, "pictures": subject.survey.images}
        operations = subject.inspector.demand(subject.grid.pixels).operations
        top = subject.trace.logits.topk(min(2, subject.trace.logits.numel())).indices.tolist()
        return {"methods": methods, "pictures": None, "starts": PASSES * operations <= BY_ITSELF, "top": top}

    def item(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """Return an item as JSON bytes: results of one method, curves, ranking or agreement.

        Run the tests not yet cached; Unknown if the item needs a survey, or one image.
        """
        compute = lazy.trial_compute
        if (name == "standing") is not (subject.survey is not None):
            raise Unknown(OF_ONE if subject.survey is not None else OF_MANY)
        if name == "standing":
            return json_bytes(lazy.trial_image_set.ranking_json(subject.survey, settings))
        if name == "classes":
            labels = list(subject.trace.labels)
            return json_bytes({"likeliest": likeliest_classes(subject.trace, SHOWN), "labels": labels})
        target = parse_target(subject, settings["target"])
        if name == "agreement":
            methods = [name for name in tested_methods(subject) if name not in (*LAST, "random", "centre")]
            others = subject.trace.logits.numel() > 1  # classes to compare maps with
            beside = compute.class_sensitivity_column(subject, target, methods) if others else None
            results = self.results(subject, settings)
            return json_bytes(to_json(compute.correlation_matrix(results, settings["score"], beside)))
        order = tested_methods(subject)
        if name == "verdict" and not settings["method"]:
            settings = {**settings, "method": order[-1]}
        if settings["method"] not in order:
            method = quoted(settings["method"])
            raise Unknown(f"There is no method {method}; expected one of {', '.join(order)}.")
        if name in ("panels", "verdict"):  # of the methods tested so far, in the order of requests
            preceding = order[: order.index(settings["method"]) + 1]
            arguments = settings["patches_as"], preceding, requested_steps(settings)
            trial = replace(compute.evaluate_all(subject, target, *arguments), planned=len(order) - 1)
            if name == "verdict":
                return json_bytes(compute.ranking_json(trial, settings["score"]))
            ranked = tuple(method for method, _ in trial.ranking(settings["score"]))
            names = ranked if preceding == order else tuple(trial.curves)
            return json_bytes(to_json(compute.curve_panels(trial, names, subject, settings)))
        arguments = settings["patches_as"], settings["method"], requested_steps(settings)
        return json_bytes(compute.method_json(compute.evaluate_method(subject, target, *arguments)))

    def results(self, subject: ViewContext, settings: Settings, alone: bool = False):
        """Return the test of all methods; with `alone`, that of the selected method and random maps."""
        methods = ("random", settings["method"]) if alone else tested_methods(subject)
        target = parse_target(subject, settings["target"])
        arguments = settings["patches_as"], tuple(dict.fromkeys(methods)), requested_steps(settings)
        return lazy.trial_compute.evaluate_all(subject, target, *arguments)

    def numbers(self, subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
        """Return areas, curves and maps by method for one image; for a survey, its means."""
        if subject.survey is not None:
            return lazy.trial_image_set.arrays(subject.survey, settings)
        return lazy.trial_compute.result_arrays(self.results(subject, settings))
