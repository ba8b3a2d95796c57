"""What shapes the result of a training; machine and length are arguments of train.py."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Settings:
    image: int = 112  # 14 × 14 patches of 8 px: 197 tokens, as in the paper and in the teacher
    patch: int = 8
    width: int = 192
    depth: int = 8
    heads: int = 3
    classes: int = 200
    batch_cpu: int = 128  # few epochs fit into the time; small batches make more of each picture
    batch_gpu: int = 1024
    peak_lr: float = 1e-3  # per 128 pictures; grows with the root of the batch
    warmup: float = 0.03  # share of the training
    weight_decay: float = 0.05
    clip: float = 1.0
    ema: float = 0.999
    kept: tuple = ((0.0, 0.25), (0.65, 0.5), (0.92, 1.0))  # from this progress on, this share of patches
    smallest_crop: float = 0.45
    mixed: float = (
        0.1  # share of batches that are mixed (mixup or cutmix); more would not pay in so few epochs
    )
    unmixed_from: float = 0.85
    smoothing: float = 0.05
    soft_labels: float = 0.6  # weight of the teacher's labels beside the true one
    token_match: float = 0.5  # weight of matching the teacher's class token
    attention_match: float = 1.0  # weight of matching early attention, fading to a tenth by half time
    led_from: float = 2.0  # from this progress on it has another weight; never, in the first part
    led_match: float = 0.0
    attention_pictures: int = 16
    attention_share: float = 0.5  # of the steps, since it costs a fifth of one
    # From this progress on, these heads learn from these of the teacher: (layer, head, teacher's layer, its
    # head). DeiT-Tiny's layer 2 (from 0) has its most local heads.
    taught: tuple = (
        (0.0, ((0, 0, 0, 0), (0, 1, 0, 1), (0, 2, 0, 2), (1, 0, 2, 0), (1, 1, 2, 1), (1, 2, 2, 2))),
    )
    checked: int = 500  # validation pictures at each snapshot; export.py asks about all
    snapshots: tuple = (
        0,
        3,
        10,
        30,
        100,
        200,
        300,
        600,
        1000,
        1500,
        2000,
        3000,
        4000,
        6000,
        8000,
        10000,
        14000,
        20000,
        25000,
        30000,
        36000,
    )


FIRST = Settings()

# The second part starts from the first one's average (a warm restart: Loshchilov & Hutter 2017). By then the
# model names 63 % of its training pictures but 46 % of others, so views and labels get harder to learn by
# heart; and the teacher, whose widest early head reaches 0.81 of uniform attention, no longer holds back the
# widest two. Left alone the wider of them came to 0.91 and sank to 0.88 again, so near the end the teacher's
# widest head leads it.
_NARROW = ((0, 0, 0, 0), (0, 2, 0, 2), (1, 0, 2, 0), (1, 1, 2, 1))
SECOND = replace(
    FIRST,
    peak_lr=8e-4,
    kept=((0.0, 0.25), (0.55, 0.5), (0.88, 1.0)),
    smallest_crop=0.3,
    mixed=0.4,
    soft_labels=0.8,
    attention_match=0.3,
    attention_share=0.25,
    led_from=0.8,
    led_match=3.0,
    taught=((0.0, _NARROW), (0.8, (*_NARROW, (0, 1, 11, 2)))),
)
