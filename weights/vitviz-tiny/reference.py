"""What the shipped model's heads and MLPs hand on as a rule: means over validation pictures, to put in the
place of one.

    python reference.py --data <tiny-imagenet> [--pictures 500] [--seed 0]

Writes reference.safetensors (float16): `heads`, layer x head x token x dim, before the
projection, and `mlps`, layer x token x width. It names the weights that it was made
with by their SHA-256; vitviz passes over a file that belongs to others.
"""

import argparse
import hashlib
from pathlib import Path

import data
import numpy as np
import torch
from PIL import Image
from safetensors.torch import save_file

import vitviz
from vitviz.engine.ablation import measure_means
from vitviz.engine.forward.mean_ablation import FILE

HERE = Path(__file__).parent
SOURCE = "validation pictures of Tiny-ImageNet"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="the Tiny-ImageNet folder")
    parser.add_argument("--pictures", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    planes, _ = data.load_split(asked.data, "val")
    drawn = sorted(
        np.random.default_rng(asked.seed).choice(len(planes), asked.pictures, replace=False).tolist()
    )
    pictures = (Image.fromarray(planes[number].permute(1, 2, 0).numpy()) for number in drawn)
    inspector = vitviz.load("vitviz-tiny", device="cpu")

    def told(done: int) -> None:
        if done % 100 == 0:
            print(f"{done} of {asked.pictures}", flush=True)

    means = measure_means(inspector.forward, pictures, inspector.preprocessing.size, SOURCE, told)
    about = {
        "weights": hashlib.sha256((HERE / "model.safetensors").read_bytes()).hexdigest(),
        "pictures": str(means.pictures),
        "prefix": str(means.prefix),
        "source": SOURCE,
        "seed": str(asked.seed),
    }
    tensors = {"heads": torch.stack(means.heads).half(), "mlps": torch.stack(means.mlps).half()}
    save_file(tensors, HERE / FILE, metadata=about)


if __name__ == "__main__":
    main()
