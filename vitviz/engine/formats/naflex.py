"""timm's NaFlex models (NaViT and FlexiViT combined) as plain Vision Transformers of one input size.

A NaFlex model processes batches of images, each with its own number of patches. For one image at one size the
model is a plain ViT: the linear map of flattened patches is a convolution, and the position table,
interpolated to the grid by the model's own rule, is the table of that grid. Every size is interpolated from
the original table, so each is exact. Not supported: rotary positions and embedding norms, which timm's plain
ViT lacks.
"""

import torch
from einops import rearrange
from timm.models.naflexvit import NaFlexEmbeds, NaFlexVit
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from vitviz.errors import UnsupportedModel
from vitviz.traces.grid import Size

_SAME = (
    "blocks", "norm_pre", "norm", "attn_pool", "fc_norm", "head_drop", "head", "global_pool", "num_classes",
    "pool_include_prefix",
)  # fmt: skip


class NaFlexAtOneSize(VisionTransformer):
    """Plain ViT that shares a NaFlex model's weights and matches its output at one size (height, width)."""

    def __init__(self, model: NaFlexVit, size: tuple[int, int]):
        embeds = model.embeds
        # depth, heads, classes and pooling are placeholders; the model's own modules replace them below
        super().__init__(
            img_size=size, patch_size=embeds.patch_size, in_chans=embeds.in_chans, embed_dim=embeds.embed_dim,
            depth=1, num_heads=1, num_classes=0, global_pool="", class_token=embeds.cls_token is not None,
            reg_tokens=embeds.num_reg_tokens, no_embed_class=True,
            pos_embed="none" if embeds.pos_embed_type == "none" else "learn",
        )  # fmt: skip
        for name in _SAME:
            setattr(self, name, getattr(model, name))
        self.cls_token, self.reg_token = embeds.cls_token, embeds.reg_token
        self.patch_embed.proj = _convolution(embeds)
        self.tables = embeds
        embeds.proj = nn.Identity()  # replaced by the convolution
        embeds.cls_token = embeds.reg_token = None
        self._interpolate()

    def set_input_size(self, img_size: Size | None = None, patch_size: Size | None = None) -> None:
        """Set the sizes of image and patch (height, width), and resize the position table.

        None keeps a size.
        """
        self.patch_embed.set_input_size(img_size=img_size, patch_size=patch_size)
        self._interpolate()

    def _interpolate(self) -> None:
        """Interpolate the original position table to the current grid by the model's own rule."""
        if self.pos_embed is None:
            return
        kind = self.tables.pos_embed_type
        add = getattr(self.tables, f"_apply_{'factorized' if kind == 'factorized' else 'learned'}_pos_embed")
        table = self.patch_embed.proj.weight.new_zeros(1, self.patch_embed.num_patches, self.embed_dim)
        with torch.no_grad():
            add(table, grid_size=list(self.patch_embed.grid_size))
        self.pos_embed = nn.Parameter(table, requires_grad=False)


def to_plain_vit(model: nn.Module, size: tuple[int, int], name: str) -> nn.Module:
    """Convert a filled NaFlex model to a plain ViT of `size` (height, width) that shares its weights.

    Other models are returned unchanged. Raises UnsupportedModel for a NaFlex model with parts that a plain
    ViT does not have.
    """
    if not isinstance(model, NaFlexVit):
        return model
    embeds = model.embeds
    if model.rope is not None or embeds.norm_input is not None or not isinstance(embeds.norm, nn.Identity):
        raise UnsupportedModel(
            f"{name} is a NaFlex model with rotary positions or a norm in its patch embedding, which is not"
            " supported. Choose a registered one."
        )
    return NaFlexAtOneSize(model, size)


def _convolution(embeds: NaFlexEmbeds) -> nn.Conv2d:
    """Return the patch embedding as a convolution; a linear map of flattened patches is converted."""
    if not embeds.is_linear:
        return embeds.proj
    rows, cols = embeds.patch_size
    flat = "out (row col channel)" if embeds.channels_last else "out (channel row col)"
    weight: Tensor = rearrange(embeds.proj.weight, f"{flat} -> out channel row col", row=rows, col=cols)
    convolution = nn.Conv2d(embeds.in_chans, embeds.embed_dim, (rows, cols), (rows, cols), bias=False)
    convolution.weight = nn.Parameter(weight.detach().contiguous(), requires_grad=False)
    convolution.bias = embeds.proj.bias
    return convolution
