"""Whether a view applies to a model and run. The reason is a sentence for the page.

A view gives reasons that depend on its formula in `unsupported`. Those that follow from its `scope` are here.
"""

from vitviz.traces.localized_text import LocalizedText
from vitviz.views.base import View
from vitviz.views.subject import ViewContext


def refusal(view: View, subject: ViewContext) -> str | None:
    """Return the reason why the view is not applicable to this model or run, for the page; else None."""
    trace = subject.trace
    if misses_patches(view, subject):
        return LocalizedText(
            "{view} is not applicable here, because patches have been dropped from the sequence. Restore"
            " them, or remove them by painting over them.",
            view=view.title,
        )
    if view.scope.float32_only and trace is not None and trace.dtype != "float32":
        return LocalizedText(
            "{view} is not applicable here, because it needs float32, and {checkpoint} computes in {dtype}.",
            view=view.title,
            checkpoint=subject.checkpoint,
            dtype=trace.dtype,
        )
    return view.unsupported(subject)


def misses_patches(view: View, subject: ViewContext) -> bool:
    """Return True if the view lacks only the patches that were dropped: painting over them instead helps."""
    dropped = subject.trace is not None and subject.trace.kept is not None
    return view.scope.every_patch and dropped and view.unsupported(subject) is None
