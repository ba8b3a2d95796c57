"""vitviz-tiny: a plain ViT trained from random weights, and the film of its training.

    python train.py --data <tiny-imagenet> --teacher <deit_tiny.safetensors> --work <folder> --minutes 120
    python train.py … --work <another> --after <exported folder>  # the second part, from the first's average
    python export.py --data <tiny-imagenet> --work <folder>       # what is shipped, from what was trained

Run the same command again after an interruption and it goes on where it stopped.
Three things make two CPU cores enough: three quarters of the patches are dropped for most of the training
(FLIP, Li et al. 2023), a teacher's soft labels are computed once for all pictures (DeiT, Touvron et al.
2021), and the first two layers learn from the teacher's early attention, on a few whole pictures, what they
would otherwise find only after hundreds of epochs: local heads, and so the 2-D order of the patches.
"""

import argparse
import copy
import math
import os
import random
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import data
import numpy as np
import teacher as teaching
import torch
from arguments import arguments
from film import Film
from lesson import Batch, Lesson, new_model, optimizer_for, scores
from safetensors.torch import load_file
from settings import FIRST, SECOND, Settings
from torch import Tensor, nn


class Training:
    """Model, data and state of one run; `step` makes one step, `save` and `resume` keep it."""

    def __init__(self, s: Settings, args: argparse.Namespace):
        self.s, self.args = s, args
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.batch = args.batch or (s.batch_gpu if self.device.type == "cuda" else s.batch_cpu)
        random.seed(args.seed), np.random.seed(args.seed), torch.manual_seed(args.seed)
        self.model = new_model(s).to(self.device)
        teaching.open_attention(self.model, self.device)
        self.bridge = nn.Linear(s.width, s.width).to(self.device)  # student's class token → teacher's
        self.average = copy.deepcopy(self.model.state_dict())
        self.optimizer = optimizer_for(self.model, self.bridge, s)
        self.parameters = [*self.model.parameters(), *self.bridge.parameters()]
        # One thread a worker and a part of the batch each: they meet once a step instead of at every
        # operation, which on two busy cores was the difference between half speed and a tenth.
        self.worker_count = 1 if self.device.type == "cuda" else args.threads
        self.workers = ThreadPoolExecutor(self.worker_count, initializer=torch.set_num_threads, initargs=(1,))
        self.ahead = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,))
        self.coming: Future | None = None  # the next batch, drawn while the workers compute this one
        self.done, self.elapsed, self.running = 0, 0.0, {}
        self.film = Film(args.work)
        if args.after is not None:
            self.go_on_after(args.after)
        self.load_data()
        self.order, self.position = torch.randperm(len(self.lesson.labels)), 0

    def go_on_after(self, earlier: Path) -> None:
        """Start from the weights of an exported training, whose film goes on here."""
        weights = load_file(earlier / "model.safetensors")
        self.model.load_state_dict({name: value.float() for name, value in weights.items()})
        self.average = copy.deepcopy(self.model.state_dict())
        self.film.go_on_after(earlier)

    def load_data(self) -> None:
        split = data.load_split(self.args.data, "train", self.args.limit)
        pictures, labels = (t.to(self.device) for t in split)
        checks = data.load_split(self.args.data, "val", self.args.limit)
        every = max(1, len(checks[1]) // self.s.checked)
        self.val_pictures, self.val_labels = (t[::every].to(self.device) for t in checks)
        teacher = tokens = None
        if self.args.teacher is not None:
            teacher = teaching.load_teacher(self.args.teacher, self.device)
            file = self.args.work / "teacher.pt"
            tokens = teaching.cached_class_tokens(teacher, pictures, self.workers, file)
        self.lesson = Lesson(self.s, pictures, labels, teacher, tokens)

    def progress(self) -> float:
        """From 0 to 1, by steps if their number is given, else by the clock."""
        if self.args.steps:
            return self.done / self.args.steps
        return min(1.0, self.elapsed / (60 * self.args.minutes))

    def chances(self) -> dict:
        """Everything that the next draw depends on."""
        gpu = torch.cuda.get_rng_state() if self.device.type == "cuda" else None
        generators = (random.getstate(), np.random.get_state(), torch.get_rng_state())
        return {"order": self.order, "position": self.position, "random": generators, "random_gpu": gpu}

    def draw(self, progress: float) -> Batch:
        # A batch that was drawn but not used is drawn once more after an interruption.
        self.before = self.chances()
        return self.lesson.batch(self.next_pictures(), progress)

    def next_batch(self) -> Batch:
        """This step's batch; the next one is begun."""
        batch = (self.coming or self.ahead.submit(self.draw, self.progress())).result()
        following = (self.done + 1) / self.args.steps if self.args.steps else self.progress()
        self.coming = self.ahead.submit(self.draw, following)
        return batch

    def settled(self) -> None:
        """Waits until nobody draws random numbers."""
        if self.coming is not None:
            self.coming.result()

    def next_pictures(self) -> Tensor:
        if self.position + self.batch > len(self.order):
            self.order, self.position = torch.randperm(len(self.order)), 0
        chosen = self.order[self.position : self.position + self.batch]
        self.position += self.batch
        return chosen.to(self.device)

    def gradients(self, batch: Batch, weights: dict[str, float]) -> tuple[dict[str, float], tuple]:
        """Losses of a part of a batch, and the gradients of their weighted sum."""
        parts = self.lesson.losses(self.model, self.bridge, batch)
        loss = sum(weights[name] * part for name, part in parts.items())
        slopes = torch.autograd.grad(loss, self.parameters, allow_unused=True)
        return {name: part.item() for name, part in parts.items()}, slopes

    def set_gradients(self, answers: list[tuple]) -> None:
        """The mean over the workers; a parameter that took no part in the step gets none."""
        mean = [slope for slope in answers[0] if slope is not None]
        for slopes in answers[1:]:
            torch._foreach_add_(mean, [slope for slope in slopes if slope is not None])
        torch._foreach_div_(mean, len(answers))
        means = iter(mean)
        for parameter, slope in zip(self.parameters, answers[0], strict=True):
            parameter.grad = None if slope is None else next(means)

    def step(self) -> None:
        s, progress = self.s, self.progress()
        peak = s.peak_lr * math.sqrt(self.batch / s.batch_cpu)
        lr = peak * min(1.0, (progress + 1e-3) / s.warmup) * 0.5 * (1 + math.cos(math.pi * progress)) + 1e-6
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        batch = self.next_batch()
        fading = s.led_match if progress >= s.led_from else s.attention_match * max(0.1, 1 - 1.8 * progress)
        weights = {"label": 1.0, "token": s.token_match, "attention": fading}
        parts = batch.split(self.worker_count)
        answers = list(self.workers.map(lambda part: self.gradients(part, weights), parts))
        self.set_gradients([slopes for _, slopes in answers])
        nn.utils.clip_grad_norm_(self.model.parameters(), s.clip)
        self.optimizer.step()
        self.done += 1
        decay = min(s.ema, (self.done + 1) / (self.done + 10))
        with torch.no_grad():
            current = self.model.state_dict()
            now = [current[name] for name in self.average]
            torch._foreach_lerp_(list(self.average.values()), now, 1 - decay)
        for name in answers[0][0]:
            value = sum(parts[name] for parts, _ in answers) / len(answers)
            self.running[name] = 0.98 * self.running.get(name, value) + 0.02 * value

    def save(self) -> None:
        """Everything that the next step depends on, in one atomic file."""
        self.settled()
        state = {
            **(self.before if self.coming else self.chances()),
            "done": self.done, "elapsed": self.elapsed, "running": self.running,
            "model": self.model.state_dict(), "bridge": self.bridge.state_dict(), "average": self.average,
            "optimizer": self.optimizer.state_dict(),
            "teacher_head": self.lesson.head and self.lesson.head.state_dict(),
        }  # fmt: skip
        torch.save(state, self.args.work / "state.tmp")
        os.replace(self.args.work / "state.tmp", self.args.work / "state.pt")

    def resume(self) -> None:
        """Go on from the state file, if there is one."""
        if not (self.args.work / "state.pt").exists():
            return
        state = torch.load(self.args.work / "state.pt", map_location="cpu", weights_only=False)
        for name in ("done", "elapsed", "running", "order", "position"):
            setattr(self, name, state[name])
        self.model.load_state_dict(state["model"])
        self.bridge.load_state_dict(state["bridge"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.lesson.head is not None:
            self.lesson.head.load_state_dict(state["teacher_head"])
        self.average = {name: value.to(self.device) for name, value in state["average"].items()}
        numpy_and_python = state["random"]
        random.setstate(numpy_and_python[0]), np.random.set_state(numpy_and_python[1])
        torch.set_rng_state(numpy_and_python[2])
        if state["random_gpu"] is not None:
            torch.cuda.set_rng_state(state["random_gpu"])

    def validated(self, weights: dict[str, Tensor]) -> tuple[float, float]:
        """Loss and top-1 of some weights on the validation pictures kept for checks."""
        with torch.random.fork_rng():  # a fresh model draws random weights; training must not notice
            model = new_model(self.s).to(self.device)
        model.load_state_dict(weights)
        loss, top1, _ = scores(model, self.val_pictures, self.val_labels, self.s.image, self.workers)
        return loss, top1

    def shoot(self, weights: dict[str, Tensor], kind: str) -> None:
        """Keep a snapshot as float16 and note its figures in film.csv."""
        self.settled()
        loss, top1 = self.validated(weights)
        name = f"step-{self.step_number():05d}" + ("-average" if kind == "average" else "")
        self.film.keep(name, weights)
        epochs = self.done * self.batch / len(self.order)
        row = {
            "snapshot": name, "weights": kind, "step": self.step_number(),
            "epoch": round(self.film.before["epoch"] + epochs, 3),
            "seconds": round(self.film.before["seconds"] + self.elapsed),
            "train_loss": round(self.running["label"], 4) if self.running else "",
            "val_loss": round(loss, 4), "val_top1": round(top1, 4), "val_pictures": len(self.val_labels),
        }  # fmt: skip
        self.film.note(row)
        print(row, flush=True)

    def step_number(self) -> int:
        """Counted from the beginning of the whole training."""
        return self.film.before["step"] + self.done

    def run(self) -> None:
        saved = logged = now = time.monotonic()
        while self.progress() < 1 and self.done != self.args.stop_at:
            if self.step_number() in self.s.snapshots and not self.film.has(self.step_number()):
                self.shoot(self.model.state_dict(), "raw")
            self.step()
            self.elapsed, now = self.elapsed + time.monotonic() - now, time.monotonic()
            if now - logged > 30:
                logged = now
                losses = " ".join(f"{name} {value:.3f}" for name, value in self.running.items())
                print(f"{self.progress():.3f} step {self.done} {self.elapsed:.0f} s {losses}", flush=True)
            if now - saved > 60 * self.args.save_minutes:
                saved = now
                self.save()
        self.save()
        if self.progress() >= 1:
            self.shoot(self.average, "average")


def main(line: list[str] | None = None) -> Training:
    args = arguments(line, __doc__)
    torch.set_num_threads(1)  # the workers are the threads
    args.work.mkdir(parents=True, exist_ok=True)
    training = Training(FIRST if args.after is None else SECOND, args)
    training.resume()
    training.run()
    return training


if __name__ == "__main__":
    main()
