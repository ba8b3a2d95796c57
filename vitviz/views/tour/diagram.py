"""Figure 1 of the paper as a map of the tour for the current model; each block links to its step.

The map draws and counts the parts of the checkpoint. A block of the paper that the model lacks is drawn as an
outline, and its step gives the reason. Rotary or relative positions are drawn where they act, in the
attention.
"""

from typing import Any

from vitviz.views.tour.facts import Facts

_READ = {
    "class": "y: class token",
    "average": "y: mean of the patches",
    "average of all": "y: mean of all tokens",
    "max": "y: largest of the patches",
    "max of all": "y: largest of all tokens",
    "average and max": "y: mean and largest",
    "average and max of all": "y: mean and largest",
    "class and average": "y: class token, mean",
    "class and distillation": "y: class, distillation",
    "attention": "y: attention pooling",
}


def model_diagram(f: Facts) -> dict[str, Any]:
    """Return the diagram as JSON: blocks in the order of the steps, prefix tokens, and the encoder."""
    kinds = [name.split()[0] for name in f.grid.prefix_names]  # of tokens before the patches
    return {
        "blocks": _diagram_boxes(f),
        "values": f.values,
        "front": [[kind, kinds.count(kind)] for kind in dict.fromkeys(kinds)],
        "tokens": f.grid.tokens,
        "plain": f.plain_blocks,  # a block is LN, attention, LN, MLP, each pair with a way around it
        "norm": f.norm_before_blocks,
    }


def _diagram_box(step: str, name: str, size: str = "", there: bool = True) -> dict[str, Any]:
    """Return one block as JSON; names in braces stand for values, `there` is False for an absent part."""
    return {"step": step, "name": name, "size": size, "there": there}


def _diagram_boxes(f: Facts) -> list[dict[str, Any]]:
    """Return the boxes of the diagram, from the image to the probabilities."""
    grid, tokens = "{rows} × {cols} of {tall} × {wide}", "{tokens} tokens"
    turned = next((f", {kind}" for kind in ("rotary", "relative") if kind in f.positions), "")
    classified, accounted = f.classes > 0, f.classes > 0 and f.accounted
    score = {"softmax": "Softmax", "sigmoid": "Sigmoid", "value": "Value"}[f.head_type]
    classifier = score if classified else "No classifier"
    token = _diagram_box("token", tokens)
    token = (
        token if "class" in f.grid.prefix_names else _diagram_box("token", "No class token", tokens, False)
    )
    place = _diagram_box("positions", "+ positions", "{table} × {width}")
    place = place if "learned" in f.positions else _diagram_box("positions", "No E_pos", there=False)
    return [
        _diagram_box("picture", "Image", "{height} × {across} × 3"),
        _diagram_box("patches", "Convolutions" if f.stem else "Patches", grid),
        _diagram_box("flatten", "Flattened", "" if f.stem else "{patches} × {numbers}", not f.stem),
        _diagram_box("embedding", "Linear embedding E", "→ {width}" if f.stem else "{numbers} → {width}"),
        token,
        place,
        _diagram_box(
            "attention", "Attention", "{heads} × {dim}" + turned if turned else "{heads} heads × {dim}"
        ),
        _diagram_box("layers", "MLP", "{width} → {mlp} → {width}" if f.mlp else ""),
        _diagram_box("layers", "Encoder", "× {layers}"),
        _diagram_box("readout", _READ.get(f.pool, "y"), "{read} → {classes}" if classified else "{read}"),
        _diagram_box("probabilities", classifier, "{classes}" * classified, classified),
        _diagram_box("sum", "{together} terms" if accounted else "No terms", there=accounted),
        _diagram_box("without", "Ablate a head", there=accounted),
        _diagram_box("path", "One path", there=accounted),
    ]


def diagram_texts(f: Facts) -> set[str]:
    """Return all English texts of one model's diagram."""
    blocks = model_diagram(f)["blocks"]
    return {block[part] for block in blocks for part in ("name", "size")} - {""}
