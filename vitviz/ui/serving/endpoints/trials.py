"""The endpoint `trial`: maps on trial on one picture, for programs; hints are real objects here."""

from typing import Literal

from vitviz.ui.serving.derived import Picture
from vitviz.ui.serving.endpoints.asking import Asking
from vitviz.ui.serving.plain import cells, plain
from vitviz.views.trial.order import ORDER

METHOD = Literal[("", *ORDER)]


class OfTrials(Asking):
    """Answers about maps on trial."""

    def trial(
        self,
        image: Picture,
        checkpoint: str = "",
        target: str = "top",
        patches_as: Literal["dropped", "mean", "blur", "black"] = "dropped",
        score: Literal["probability", "logit", "kept"] = "probability",
        method: METHOD = "",
    ) -> dict:
        """Maps on trial: patches are taken away in each map's order, and the model is asked again.

        Args:
            image: a file (handle_file), or the name of a sample
            checkpoint: a name that `checkpoints` lists; empty for the first one
            target: a class, from 0; "top" for the likeliest; "7-3" for class 7 rather than 3
            patches_as: what is taken away is dropped from the sequence, or painted over
            score: what is watched, for the ranking and the verdict
            method: one alone, beside the random maps; empty for all

        Returns:
            {checkpoint, dtype, target, patches_as, shares, verdict, chance: [mean gap, deviation], rows:
            [{method, areas: [most, least relevant first], gap, saco, beats, unexplained}], maps: {method:
            rows x cols}, curves: {method: {most, least}}, refused: {method: why}, grid}
        """
        view, subject = self._studio.view("trial"), self._subject(image, checkpoint)
        given = {"target": target, "patches_as": patches_as, "score": score, "method": method}
        settings = view.settings({name: str(value) for name, value in given.items()}, subject.about)
        if reason := view.refused(subject):
            return {"checkpoint": subject.checkpoint, "not_applicable": str(reason)}
        from vitviz.analyses.trials.verdict import verdict
        from vitviz.views.trial import made

        score, found = settings["score"], view.whole(subject, settings, alone=bool(settings["method"]))
        told = made.told(found, score)
        curves = {
            name: {"most": plain(one.most[score]), "least": plain(one.least[score])}
            for name, one in found.curves.items()
        }
        return {
            "checkpoint": subject.checkpoint,
            "dtype": subject.trace.dtype,
            "target": list(found.classes),
            "patches_as": found.patches_as,
            "shares": list(found.shares),
            "verdict": str(verdict(found, score)),
            "chance": told["chance"],
            "rows": told["rows"],
            "maps": {name: plain(one.map) for name, one in found.maps.items()},
            "curves": curves,
            "refused": {name: str(reason) for name, reason in found.refused.items()},
            "grid": cells(subject.grid),
        }
