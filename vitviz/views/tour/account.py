"""The tour's last steps: the logit as a sum of what was written, without its largest part, a path back."""

from dataclasses import replace
from typing import Any

from vitviz import analyses
from vitviz.errors import VitvizError
from vitviz.figures.chart import travelled
from vitviz.record.sentence import said
from vitviz.views.base import paragraphs
from vitviz.views.printing import counted, patch_name, writer_name
from vitviz.views.shared import ledger_of, taken_away, writers_of
from vitviz.views.subject import Subject
from vitviz.views.tour.facts import Facts, Step

SHARES = 3  # heads whose shares are lines of their own
ANSWERS = 3  # likeliest classes with and without the head


def accounted(subject: Subject) -> bool:
    """Whether the first answer has an account that adds up."""
    if subject.trace.logits is None:
        return False
    try:
        ledger_of(subject)
    except VitvizError:
        return False
    return True


def summed(subject: Subject) -> dict[str, Any]:
    """The first answer's logit: its largest shares of heads (layer and head from 1), the rest, their sum."""
    trace = subject.trace
    if not accounted(subject):
        return {}
    first = int(trace.logits.argmax())
    account = analyses.account_of(ledger_of(subject), first)
    heads = account.heads.shape[1]
    largest = account.heads.flatten().argsort(descending=True)[:SHARES].tolist()
    lines = [
        {"layer": i // heads + 1, "head": i % heads + 1, "share": account.heads.flatten()[i].item()}
        for i in largest
    ]
    rest = account.total - sum(line["share"] for line in lines)
    sums = {"rest": rest, "total": account.total, "logit": account.logit}
    return {"name": trace.named(first), "lines": lines, **sums}


def without(subject: Subject) -> dict[str, Any]:
    """The answers without the head of the largest share, and what its logit loses; no more than the sum where
    something has been taken away already, as what goes then is another thing.
    """
    found = summed(subject)
    if not found or subject.trace.without:
        return found
    head = found["lines"][0]
    logits = subject.trace.logits.double()
    lost = taken_away(subject, head["layer"] - 1)[head["head"] - 1].double()
    left, first = logits - lost, int(logits.argmax())
    before, after = (replace(subject.trace, logits=one).top(ANSWERS) for one in (logits, left))
    numbers = {"lost": lost[first].item(), "left": left[first].item()}
    return {**found, "before": before, "after": after, **numbers}


def followed(subject: Subject) -> dict[str, Any]:
    """One path back from the first answer: the head of the largest share, its largest writer, and the patch
    at which most of that is read. Each line is a part of the one above; `settings` open it in Evidence.
    """
    found, trace = summed(subject), subject.trace
    heads = [
        (line["layer"], line["head"])
        for line in found.get("lines", ())
        if line["head"] - 1 not in trace.layers[line["layer"] - 1].replaced
    ]
    if not heads:
        return {}
    (layer, head), first = heads[0], int(trace.logits.argmax())
    try:
        read = writers_of(subject, first, layer - 1, head - 1)
    except VitvizError as error:
        return {"reason": travelled(said(error))}
    every = [line for line in read.lines() if line[0].kind not in ("bias", "constant")]
    writer, part = max(every, key=lambda line: abs(line[1]))
    patches = read.by_token.of(writer)[subject.grid.prefix :].nan_to_num()
    patch = int((patches * (1 if part >= 0 else -1)).argmax())
    names = writer_name("head", layer, head), writer_name(*counted(writer)), patch_name(patch)
    lines = zip(names, (read.share, part, patches[patch].item()), strict=True)
    return {
        "name": found["name"],
        "logit": found["total"],
        "lines": [{"name": travelled(name), "share": share} for name, share in lines],
        "patch": patch,
        "settings": {"trail": f"{layer}.{head}", "writer": ".".join(map(str, counted(writer)))},
    }


def sum_by_hand(f: Facts) -> Step:
    *told, attempt = paragraphs("""
        The stream is only ever added to, so with the deviation of the last norm held the logit is a sum too:
        every head, every MLP and every bias has its own share of it, for or against.

        Here are the three heads that gave most, everything else together, and the logit they make.

        Add the three shares and the rest with a pocket calculator: they make the model’s own logit.
    """)
    formulas = ("logit_{c} = start + Σ_{l,h} share_{l,h} + Σ_{l} MLP_{l} + biases",)
    shapes = ("{layers} layers × {heads} heads: {together} shares",)
    title = "The logit as a sum of what was written"
    return _where_accounted(Step("sum", title, tuple(told), attempt, formulas, shapes), f)


def one_taken_out(f: Facts) -> Step:
    *told, attempt = paragraphs("""
        A share is what a head wrote itself. Here the head with the largest share is taken out: its mean over
        other pictures stands in its place, and the model goes on from there.

        Later layers read what it wrote. Without it they write other things too, so the logit loses more than
        the share, or less.

        Take it out in every view, and look at Evidence: which shares are others now?
    """)
    shapes = ("1 of {together} heads replaced",)
    return _where_accounted(Step("without", "One head taken out", tuple(told), attempt, shapes=shapes), f)


def one_path(f: Facts) -> Step:
    *told, attempt = paragraphs("""
        A head writes what it has read, and what it reads others wrote before. With attention and norms held
        its share is a sum over those writers, and each writer’s part a sum over the tokens that are read.

        Here is the head that gave most, its largest writer, and the patch at which most of that is read.

        Add each share to everything else beside it: they make the number above. Then follow another path.
    """)
    formulas = ("share_{l,h} = Σ_{writer} Σ_{j} part_{j} + biases",)
    shapes = ("Of each writer: {tokens} tokens × {width} numbers",)
    return _where_accounted(Step("path", "One path followed back", tuple(told), attempt, formulas, shapes), f)


def _where_accounted(step: Step, f: Facts) -> Step:
    """The step, or why a model without an account of its answers has no such numbers."""
    if f.classes and f.accounted:
        return step
    no_classifier, another, no_account, elsewhere = paragraphs("""
        Not applicable to this model, because this checkpoint has no classifier and so no logit to account
        for.

        Pick a checkpoint with a classifier, and come back to this step.

        Not applicable to this model, because there is no account of its answers that adds up; Evidence says
        why.

        Pick another checkpoint, and come back to this step.
    """)
    told, attempt = (no_account, elsewhere) if f.classes else (no_classifier, another)
    return Step(step.name, step.title, (told,), attempt)
