"""LoRA adapters as PEFT saves them, merged into the tensors of their base model: W + scale · B A.

The scale is alpha / rank, or alpha / sqrt(rank) for rank-stabilised LoRA (Kalajdzievski 2023, 2312.03732).
Modules that were trained as a whole (a classifier, biases) replace the base model's.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor

from vitviz.errors import CheckpointError, quoted

CONFIG = "adapter_config.json"
_MERGE = "Merge it with PEFT (model.merge_and_unload()) and save that model."


def merge_adapter(
    base: Mapping[str, Tensor], adapter: Mapping[str, Tensor], config: Mapping[str, Any], name: str,
    renamed: Callable[[str], str],
) -> dict[str, Tensor]:  # fmt: skip
    """Return the base model's tensors with the adapter merged in float32.

    `renamed` maps names of a module's tensors, which PEFT saves, and names in files to one name. Raises
    CheckpointError for other kinds of adapters, and for a tensor that the base model does not have.
    """
    kind = str(config.get("peft_type")).upper()
    strange = [name for name in adapter if re.search(r"\.lora_(?![AB]\.weight$)", name)]
    if kind != "LORA" or strange or config.get("use_dora"):
        what = "DoRA" if config.get("use_dora") else strange[0] if strange else kind
        raise CheckpointError(
            f"{name} is an adapter of the type {quoted(what)}; only plain LoRA is supported. {_MERGE}"
        )
    names, tensors = {renamed(name): name for name in base}, dict(base)
    for one, value in adapter.items():
        plain = re.sub(r"\.(modules_to_save|base_layer)(?=\.)", "", one.removeprefix("base_model.model."))
        module, _, factor = plain.partition(".lora_")
        target = f"{module}.weight" if factor else plain
        key = target if target in base else names.get(renamed(target), target)
        if not factor:  # a classifier may be new
            tensors[key] = value
        elif key not in base:
            raise CheckpointError(
                f"{name} is a LoRA adapter for {module}, which its base model does not have. Correct"
                f" base_model_name_or_path in its {CONFIG}."
            )
        elif factor == "A.weight":
            patterns = (config.get("alpha_pattern") or {}).items()
            fits = (alpha for pattern, alpha in patterns if re.fullmatch(rf"(.*\.)?({pattern})", module))
            scale = next(fits, config["lora_alpha"]) / len(value) ** (0.5 if config.get("use_rslora") else 1)
            other = adapter[one.replace("lora_A", "lora_B")]
            change = scale * (other.flatten(1) @ value.flatten(1))
            change = change.T if config.get("fan_in_fan_out") else change
            tensors[key] = base[key] + change.reshape(base[key].shape)
    return tensors
