"""Train twins that differ only in their position embedding: the paper's table 8, small.

    python train_twins.py --data <tiny-imagenet> --work <folder>                   # three kinds, two seeds
    python train_twins.py --data <tiny-imagenet> --work <folder> --kinds 2d --seeds 1

The kinds of one seed go in lock-step, so that a batch is drawn once for all of them; each comes out
the same to the bit as alone. With --one-by-one they go after each other, which costs a fifth more but
finishes the first of them in a third of the time. The same command goes on after an interruption, and
does what is missing.
"""

import argparse
import random
import time
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor
from twin import Twin
from twins import KINDS, SETTINGS, lesson

# isort: split
import data  # of vitviz-tiny: twins.py says where it is

PARTS = 2  # of a batch, whatever the number of threads, so that sums come out the same


class Views:
    """The batches of a seed. What a step sees depends on the seed and the step's number alone."""

    def __init__(self, seed: int, pictures: Tensor, labels: Tensor, batch: int):
        self.seed, self.batch = seed, batch
        self.lesson = lesson.Lesson(SETTINGS, pictures, labels, None, None)
        self.steps_per_epoch = len(labels) // batch  # what is left over comes in another epoch's order
        self.epoch, self.order = -1, torch.empty(0)

    def at(self, step: int, progress: float) -> list[lesson.Batch]:
        """Parts of the batch of a step. It draws from the global generators: nobody else may, meanwhile."""
        epoch, turn = divmod(step, self.steps_per_epoch)
        if epoch != self.epoch:
            self.start(f"order {epoch}")
            self.epoch, self.order = epoch, torch.randperm(len(self.lesson.labels))
        self.start(f"views {step}")
        return self.lesson.batch(self.order[turn * self.batch :][: self.batch], progress).split(PARTS)

    def start(self, what: str) -> None:
        """Sets the generators to where they begin for something."""
        random.seed(f"{self.seed} {what}")
        torch.manual_seed(random.getrandbits(63))


class LockStep:
    """Twins of one seed; `run` trains until all are done, those that are behind first."""

    def __init__(self, twins: list[Twin], views: Views, args: argparse.Namespace, workers: Executor):
        self.twins, self.views, self.args, self.workers = twins, views, args, workers
        self.ahead: tuple[int, Future] | None = None  # the next step's batch, drawn during this step

    def progress(self, step: int) -> float:
        return step / self.args.steps

    def batch(self, step: int) -> list[lesson.Batch]:
        if self.ahead is not None and self.ahead[0] == step:
            return self.ahead[1].result()
        return self.views.at(step, self.progress(step))

    def step(self, going: list[Twin], step: int) -> None:
        """The same step of some twins."""
        for twin in going:
            twin.shoot_if_wanted()
        begun, parts = time.monotonic(), self.batch(step)
        halves = [
            [self.workers.submit(twin.gradients, self.views.lesson, part) for part in parts] for twin in going
        ]
        self.ahead = step + 1, self.workers.submit(self.views.at, step + 1, self.progress(step + 1))
        slopes = [[half.result() for half in pair] for pair in halves]
        list(self.workers.map(Twin.update, going, slopes))
        self.ahead[1].result()  # nobody draws any more
        for twin in going:
            twin.elapsed += (time.monotonic() - begun) / len(going)

    def run(self) -> None:
        saved = logged = time.monotonic()
        while (step := min(twin.done for twin in self.twins)) not in (self.args.steps, self.args.stop_at):
            self.pause()
            going = [twin for twin in self.twins if twin.done == step]
            self.step(going, step)
            now = time.monotonic()
            if now - logged > 30:
                logged = now
                told = ", ".join(f"{twin.name} {twin.running:.3f}" for twin in going)
                print(f"step {step + 1} of {self.args.steps}: {told}", flush=True)
            if now - saved > 60 * self.args.save_minutes:
                saved = now
                self.save()
        self.save()
        for twin in self.twins:
            twin.finish()

    def save(self) -> None:
        for twin in self.twins:
            twin.save()

    def pause(self) -> None:
        """Sleeps while there is the file that asks for it; whoever waits for too long can be ended."""
        file = self.args.pause_while
        if file is not None and file.exists():
            self.save()
            while file.exists():
                time.sleep(1)


def arguments(line: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="folder with train-*.npz, val.npz, classes.json"
    )
    parser.add_argument(
        "--work", type=Path, required=True, help="folder for a folder of states and snapshots of each run"
    )
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1), help="always one by one")
    parser.add_argument("--one-by-one", action="store_true", help="instead of all kinds in lock-step")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--batch", type=int, default=SETTINGS.batch_cpu)
    parser.add_argument("--stop-at", type=int, help="interrupt after this step, as a crash would, but saved")
    parser.add_argument("--limit", type=int, help="use only the first pictures of each split")
    parser.add_argument("--save-minutes", type=float, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--pause-while", type=Path, metavar="FILE", help="do nothing while there is this file"
    )
    return parser.parse_args(line)


def main(line: list[str] | None = None) -> list[Twin]:
    args = arguments(line)
    torch.set_num_threads(1)  # the workers are the threads
    pictures, labels = data.load_split(args.data, "train", args.limit)
    every = max(1, len(data.load_split(args.data, "val", args.limit)[1]) // SETTINGS.checked)
    checks = tuple(t[::every] for t in data.load_split(args.data, "val", args.limit))
    trained = []
    with ThreadPoolExecutor(args.threads, initializer=torch.set_num_threads, initargs=(1,)) as workers:
        for seed in args.seeds:
            views = Views(seed, pictures, labels, args.batch)
            for kinds in [[kind] for kind in args.kinds] if args.one_by_one else [args.kinds]:
                twins = [Twin(kind, seed, args, views.steps_per_epoch, checks, workers) for kind in kinds]
                LockStep(twins, views, args, workers).run()
                trained += twins
    return trained


if __name__ == "__main__":
    main()
