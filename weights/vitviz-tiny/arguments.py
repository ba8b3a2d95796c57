"""What the command line of the training decides."""

import argparse
from pathlib import Path


def arguments(line: list[str] | None, description: str) -> argparse.Namespace:
    """The settings of one run, from a command line or the program's own."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with train-*.npz, val.npz, classes.json"
    )
    parser.add_argument("--work", type=Path, required=True, help="folder for state, logs and snapshots")
    parser.add_argument("--teacher", type=Path, help="DeiT-Tiny's safetensors file; without it, labels alone")
    parser.add_argument(
        "--after", type=Path, help="folder of an exported training: the second part, from its weights"
    )
    parser.add_argument(
        "--minutes", type=float, default=120, help="training time that the schedule is made for"
    )
    parser.add_argument(
        "--steps", type=int, help="make the schedule for steps instead: then the result is exact"
    )
    parser.add_argument("--stop-at", type=int, help="interrupt after this step, as a crash would, but saved")
    parser.add_argument("--limit", type=int, help="use only the first pictures of each split")
    parser.add_argument("--batch", type=int, help="pictures a step, instead of the settings'")
    parser.add_argument("--save-minutes", type=float, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(line)
