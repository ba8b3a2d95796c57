"""One run: a twin, what its next step depends on, and the film of its training."""

import argparse
import math
import os
from concurrent.futures import Executor
from dataclasses import asdict

import torch
from torch import Tensor, nn
from twins import SETTINGS, lesson, new_twin, plain, plain_model

# isort: split
import teacher as teaching  # these two are vitviz-tiny's: twins.py says where they are
from film import Film


class Twin:
    """`gradients` of the parts of a batch, then `update`, make a step.

    `save` keeps everything, and a new Twin goes on from there.
    """

    def __init__(
        self,
        kind: str,
        seed: int,
        args: argparse.Namespace,
        steps_per_epoch: int,
        checks: tuple[Tensor, Tensor],
        workers: Executor,
    ):
        self.kind, self.name, self.args, self.steps_per_epoch = kind, f"{kind}-{seed}", args, steps_per_epoch
        self.checks, self.workers = checks, workers
        self.work = args.work / self.name
        self.work.mkdir(parents=True, exist_ok=True)
        self.film = Film(self.work)
        self.model = new_twin(kind, seed)
        teaching.open_attention(self.model, torch.device("cpu"))
        self.parameters = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = lesson.optimizer_for(self.model, nn.Identity(), SETTINGS)
        self.average = {name: value.clone() for name, value in self.model.state_dict().items()}
        self.done, self.elapsed, self.running = 0, 0.0, math.nan
        self.recipe = {**asdict(SETTINGS), "steps": args.steps, "batch": args.batch, "limit": args.limit}
        self.resume()

    def gradients(self, views: "lesson.Lesson", part: "lesson.Batch") -> tuple[float, tuple]:
        """Loss of a part of a batch, and the gradients of it."""
        loss = views.losses(self.model, None, part)["label"]
        return loss.item(), torch.autograd.grad(loss, self.parameters)

    def update(self, answers: list[tuple[float, tuple]]) -> None:
        """One step, from the mean of what the parts say."""
        progress = self.done / self.args.steps
        lr = SETTINGS.peak_lr * min(1.0, (progress + 1e-3) / SETTINGS.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = lr * 0.5 * (1 + math.cos(math.pi * progress)) + 1e-6
        for parameter, *slopes in zip(self.parameters, *(slopes for _, slopes in answers), strict=True):
            parameter.grad = sum(slopes[1:], slopes[0]) / len(slopes)
        nn.utils.clip_grad_norm_(self.parameters, SETTINGS.clip)
        self.optimizer.step()
        self.done += 1
        decay = min(SETTINGS.ema, (self.done + 1) / (self.done + 10))
        with torch.no_grad():
            current = self.model.state_dict()
            now = [current[name] for name in self.average]
            torch._foreach_lerp_(list(self.average.values()), now, 1 - decay)
        loss = sum(loss for loss, _ in answers) / len(answers)
        self.running = loss if math.isnan(self.running) else 0.98 * self.running + 0.02 * loss

    def save(self) -> None:
        """Everything that the next step depends on, in one atomic file."""
        state = {
            "recipe": self.recipe, "done": self.done, "elapsed": self.elapsed, "running": self.running,
            "model": self.model.state_dict(), "average": self.average,
            "optimizer": self.optimizer.state_dict(),
        }  # fmt: skip
        torch.save(state, self.work / "state.tmp")
        os.replace(self.work / "state.tmp", self.work / "state.pt")

    def resume(self) -> None:
        """Go on from the state file, if there is one."""
        file = self.work / "state.pt"
        if not file.exists():
            return
        state = torch.load(file, map_location="cpu", weights_only=False)
        other = [name for name, value in self.recipe.items() if state["recipe"].get(name) != value]
        if other:
            raise ValueError(
                f"{file} was made with another {', '.join(other)}. Give another --work, or go back."
            )
        self.done, self.elapsed, self.running = state["done"], state["elapsed"], state["running"]
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.average = state["average"]

    def shoot_if_wanted(self) -> None:
        """Keep a snapshot of the weights as they are, if this step is one of the film."""
        if self.done in SETTINGS.snapshots and not self.film.has(self.done):
            self.shoot(f"step-{self.done:05d}", "raw", self.model.state_dict())

    def finish(self) -> None:
        """Keep the average, once, if the training is over."""
        name = f"step-{self.done:05d}-average"
        if self.done == self.args.steps and not self.film.snapshot(name).exists():
            self.shoot(name, "average", self.average)

    def shoot(self, name: str, what: str, weights: dict[str, Tensor]) -> None:
        """Keep weights as float16 and in timm's form, and note their figures in film.csv."""
        model, weights = plain_model(self.kind), plain(self.kind, weights)
        model.load_state_dict(weights)
        loss, top1, _ = lesson.scores(model, *self.checks, SETTINGS.image, self.workers)
        self.film.keep(name, weights)
        row = {
            "snapshot": name, "weights": what, "step": self.done,
            "epoch": round(self.done / self.steps_per_epoch, 3), "seconds": round(self.elapsed),
            "train_loss": "" if math.isnan(self.running) else round(self.running, 4),
            "val_loss": round(loss, 4), "val_top1": round(top1, 4), "val_pictures": len(self.checks[1]),
        }  # fmt: skip
        self.film.note(row)
        print(self.name, row, flush=True)
