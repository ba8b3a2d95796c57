"""What a checkpoint was trained on, in words, from the tag that timm gives it."""

from __future__ import annotations

import re

# Parts of a tag, longest first where one contains another.
_DATA = {
    "in1k": "ImageNet-1k",
    "in12k": "ImageNet-12k",
    "in21k": "ImageNet-21k",
    "in22k": "ImageNet-22k",
    "laion2b": "LAION-2B",
    "laion400m": "LAION-400M",
    "openai": "OpenAI's 400 M image-text pairs",
    "webli": "WebLI",
    "datacompxl": "DataComp-1B",
    "dfn2b": "DFN-2B",
    "dfndr2b": "DFNDR-2B",
    "dfn5b": "DFN-5B",
    "metaclip_400m": "MetaCLIP-400M",
    "metaclip_2pt5b": "MetaCLIP-2.5B",
    "metaclip2_worldwide": "MetaCLIP 2 worldwide",
    "merged2b": "Merged-2B",
    "m30m": "Merged-30M",
    "m38m": "Merged-38M",
    "lvd142m": "LVD-142M",
    "lvd1689m": "LVD-1689M",
    "sat493m": "SAT-493M",
    "yfcc15m": "YFCC-15M",
    "bamboo": "Bamboo",
    "tiny_imagenet": "Tiny-ImageNet",
    # Facebook's self-supervised checkpoints, whose tag is the method.
    "dino": "ImageNet-1k, without labels (DINO)",
    "mae": "ImageNet-1k, without labels (MAE)",
}


def in_words(tag: str) -> str:
    """The data sets of a tag in the order of training; empty where it names none that is known.

    >>> in_words("augreg_in21k_ft_in1k"), in_words("in22k_ft_in22k_in1k"), in_words("pt")
    ('ImageNet-21k, then ImageNet-1k', 'ImageNet-22k, then ImageNet-1k', '')
    """
    found = {}
    for name, words in _DATA.items():
        match = re.search(rf"(?:^|_){name}(?=_|$)", tag or "")
        if match:
            found[words] = match.start()
    return ", then ".join(sorted(found, key=found.__getitem__))
