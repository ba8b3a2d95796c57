"""What one step learns from: the student's forward pass on kept patches, mixing, losses; and how it is
scored.
"""

import math
import random
from concurrent.futures import Executor
from dataclasses import dataclass

import data
import teacher as teaching
import torch
import torch.nn.functional as F
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn


def new_model(s) -> VisionTransformer:
    """The architecture of config.json, with fresh random weights."""
    return VisionTransformer(
        img_size=s.image,
        patch_size=s.patch,
        embed_dim=s.width,
        depth=s.depth,
        num_heads=s.heads,
        num_classes=s.classes,
    )


def optimizer_for(model: nn.Module, bridge: nn.Module, s) -> torch.optim.Optimizer:
    """AdamW; no decay for biases, norms, position embedding and class token."""
    named = [*model.named_parameters(), *bridge.named_parameters()]
    kept_whole = [p.ndim < 2 or "pos_embed" in name or name == "cls_token" for name, p in named]
    decayed = [p for (_, p), whole in zip(named, kept_whole, strict=True) if not whole]
    others = [p for (_, p), whole in zip(named, kept_whole, strict=True) if whole]
    groups = [{"params": decayed, "weight_decay": s.weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=s.peak_lr, betas=(0.9, 0.99), fused=True)


def scores(
    model: nn.Module, pictures: Tensor, labels: Tensor, size: int, workers: Executor
) -> tuple[float, float, float]:
    """Loss, top-1 and top-5 on whole pictures."""
    model.eval()
    teaching.open_attention(model, pictures.device)

    @torch.inference_mode()
    def logits(start: int) -> Tensor:
        with torch.autocast(pictures.device.type, dtype=torch.bfloat16):
            return model(data.enlarged(pictures[start : start + 250], size)).float()

    answers = torch.cat(list(workers.map(logits, range(0, len(labels), 250))))
    right = answers.topk(5).indices == labels[:, None]
    return (
        F.cross_entropy(answers, labels).item(),
        right[:, 0].float().mean().item(),
        right.any(1).float().mean().item(),
    )


def embedded(model: VisionTransformer, patches: Tensor, kept: Tensor | None) -> Tensor:
    """Equation (1) of the paper for the kept patches: class token first, E_pos added."""
    projection = model.patch_embed.proj
    tokens = F.linear(patches, projection.weight.flatten(1), projection.bias)
    position = model.pos_embed[0, 1:]
    # F.embedding and not indexing: its backward adds up in a fixed order, so that resuming is exact
    tokens = tokens + (position if kept is None else F.embedding(kept, position))
    start = (model.cls_token + model.pos_embed[:, :1]).expand(len(tokens), -1, -1)
    return torch.cat([start.to(tokens.dtype), tokens], dim=1)


@dataclass(frozen=True)
class Batch:
    """What one step sees; `whole` are all patches of a few views, for the student and for the teacher."""

    patches: Tensor
    kept: Tensor | None
    target: Tensor
    token: Tensor | None
    whole: tuple[Tensor, Tensor] | None
    progress: float = 0.0

    def split(self, count: int) -> list["Batch"]:
        """The same in equal parts, one for each worker."""
        none = [None] * count
        whole = zip(*(t.chunk(count) for t in self.whole), strict=True) if self.whole is not None else none
        return [
            Batch(*part)
            for part in zip(
                self.patches.chunk(count),
                none if self.kept is None else self.kept.chunk(count),
                self.target.chunk(count),
                none if self.token is None else self.token.chunk(count),
                whole,
                [self.progress] * count,
                strict=True,
            )
        ]


class Lesson:
    """Pictures, teacher and objective; `batch` draws random views, `losses` says what to minimise on them."""

    def __init__(self, s, pictures: Tensor, labels: Tensor, teacher: nn.Module | None, tokens: Tensor | None):
        self.s, self.device = s, pictures.device
        self.pictures, self.labels = pictures, labels
        self.teacher, self.tokens, self.head = teacher, tokens, None
        self.centres = data.pixel_centres(s.image, s.patch, self.device)
        self.teacher_centres = data.pixel_centres(teaching.SIZE, teaching.PATCH, self.device)
        if tokens is not None:
            self.head = teaching.fitted_head(tokens, labels, s.classes)

    def targets(self, chosen: Tensor, views: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor | None]:
        """Class probabilities to learn, and the teacher's class token to match."""
        s = self.s
        hard = F.one_hot(self.labels[chosen], s.classes).float()
        hard = hard * (1 - s.smoothing) + s.smoothing / s.classes
        if self.head is None:
            return hard, None
        if self.device.type == "cpu":
            tokens = self.tokens[chosen].float()
        else:  # a GPU asks the teacher about every crop instead
            tokens = self.teacher_view(*views)
        soft = self.head(tokens).softmax(dim=-1)
        return torch.lerp(hard, soft, s.soft_labels), tokens

    @torch.no_grad()
    def teacher_view(self, x: Tensor, maps: Tensor) -> Tensor:
        """The teacher's class token for crops."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            tokens = embedded(self.teacher, data.sampled_patches(x, maps, self.teacher_centres, None), None)
            return self.teacher.norm(self.teacher.blocks(tokens))[:, 0].float()

    def mixed(self, patches: Tensor, target: Tensor, token: Tensor | None, kept: Tensor | None) -> tuple:
        """Mixup, or cutmix along patches, of each picture with its mirror in the batch; all targets mix
        alike.
        """
        partner = patches.flip(0)
        share = torch.distributions.Beta(0.8, 0.8).sample().item()  # of the picture itself
        if random.random() < 0.5:
            patches, own = (
                torch.lerp(partner, patches, share),
                torch.full((len(patches), 1), share, device=self.device),
            )
        else:
            rows = self.s.image // self.s.patch
            box = round(rows * math.sqrt(1 - share))
            top, left = random.randint(0, rows - box), random.randint(0, rows - box)
            inside = torch.zeros(rows, rows, dtype=torch.bool, device=self.device)
            inside[top : top + box, left : left + box] = True
            if kept is None:
                cut = inside.flatten().expand(len(patches), -1)
            else:  # both pictures of a pair lie in the same places
                cut = inside.flatten()[kept]
            patches = torch.where(cut[..., None], partner, patches)
            own = 1 - cut.float().mean(dim=1, keepdim=True)
        target = torch.lerp(target.flip(0), target, own)
        return patches, target, None if token is None else torch.lerp(token.flip(0), token, own)

    def batch(self, chosen: Tensor, progress: float) -> Batch:
        """Random views of the chosen pictures, and what to learn from them."""
        s = self.s
        x = data.jittered(data.normalised(self.pictures[chosen]))
        maps = data.random_crops(len(x), s.smallest_crop, self.device)
        share = [share for start, share in s.kept if progress >= start][-1]
        kept = data.random_patches(len(x), len(self.centres), share, self.device)
        mixes = progress < s.unmixed_from and random.random() < s.mixed
        if mixes and kept is not None:  # see `mixed`
            half = kept[: (len(kept) + 1) // 2]
            kept = torch.cat([half, half[: len(kept) // 2].flip(0)])
        patches = data.sampled_patches(x, maps, self.centres, kept)
        target, token = self.targets(chosen, (x, maps))
        if mixes:
            patches, target, token = self.mixed(patches, target, token, kept)
        whole = None
        if self.teacher is not None and random.random() < s.attention_share:
            few, maps = x[: s.attention_pictures], maps[: s.attention_pictures]
            whole = (
                data.sampled_patches(few, maps, self.centres, None),
                data.sampled_patches(few, maps, self.teacher_centres, None),
            )
        return Batch(patches, kept, target, token, whole, progress)

    def losses(self, model: nn.Module, bridge: nn.Module, batch: Batch) -> dict[str, Tensor]:
        """What to minimise for a batch, in parts that are yet to be weighted."""
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            seen = model.norm(model.blocks(embedded(model, batch.patches, batch.kept)))[:, 0]
            parts = {"label": F.cross_entropy(model.head(seen).float(), batch.target)}
            if batch.token is not None:
                parts["token"] = (1 - F.cosine_similarity(bridge(seen).float(), batch.token)).mean()
            if batch.whole is not None:
                parts["attention"] = self.attention_loss(model, *batch.whole, batch.progress)
        return parts

    def attention_loss(
        self, model: nn.Module, patches: Tensor, teacher_patches: Tensor, progress: float
    ) -> Tensor:
        """Divergence of early attention from the teacher's, averaged over pictures, heads and queries."""
        taught = [heads for start, heads in self.s.taught if progress >= start][-1]
        with torch.no_grad():
            wanted = teaching.log_attentions(
                self.teacher,
                embedded(self.teacher, teacher_patches, None),
                {layer for _, _, layer, _ in taught},
            )
        found = teaching.log_attentions(
            model, embedded(model, patches, None), {layer for layer, *_ in taught}
        )
        pairs = [(wanted[theirs][:, other], found[layer][:, head]) for layer, head, theirs, other in taught]
        return sum((w.exp() * (w - f)).sum(dim=-1).mean() for w, f in pairs) / len(pairs)
