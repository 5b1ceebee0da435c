"""A vision transformer (Dosovitskiy et al., ICLR 2021) of the tiny size of DeiT (Touvron et al., ICML 2021).

Its tensors have the names that the field's published weights have, so that a file of those can be loaded where images
are 224x224.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from seu_bench.data import InputShape
from seu_bench.errors import RequestError

#: Width, heads and blocks of the tiny size; hidden layers are four times as wide.
WIDTH, HEADS, DEPTH, HIDDEN = 192, 3, 12, 4
#: Pixels of a patch's side at most; smaller images are cut into at least so many patches a side.
LARGEST_PATCH, LEAST_PATCHES = 16, 7


def vit_tiny(sample: InputShape, factor: float) -> tuple[nn.Module, int]:
    """The tiny vision transformer; patches of 16 pixels for images of 224, of 4 for images of 28 or 32."""
    channels, height, width = sample.shape
    sizes = [side for side in range(1, LARGEST_PATCH + 1) if not height % side and not width % side]
    fitting = [side for side in sizes if min(height, width) // side >= LEAST_PATCHES]
    if not fitting:
        raise RequestError(
            f"images of {height}x{width} have too few pixels for {LEAST_PATCHES} patches a side",
            where="backbone vit_tiny",
            remedy="choose another backbone",
        )
    features = HEADS * max(1, round(factor * WIDTH / HEADS))
    return VisionTransformer(channels, height, width, fitting[-1], features), features


class _Patches(nn.Module):
    def __init__(self, channels: int, patch: int, features: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, features, patch, stride=patch)

    def forward(self, images: Tensor) -> Tensor:
        patches: Tensor = self.proj(images)
        return patches.flatten(2).transpose(1, 2)


class _Attention(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.qkv = nn.Linear(features, 3 * features)
        self.proj = nn.Linear(features, features)

    def forward(self, x: Tensor) -> Tensor:
        count, places, features = x.shape
        query, key, value = self.qkv(x).view(count, places, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value)
        out: Tensor = self.proj(mixed.transpose(1, 2).reshape(count, places, features))
        return out


class _Mlp(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(features, HIDDEN * features)
        self.act = nn.GELU()
        self.fc2 = nn.Linear(HIDDEN * features, features)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.fc2(self.act(self.fc1(x)))
        return out


class _Block(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(features, eps=1e-6)
        self.attn = _Attention(features)
        self.norm2 = nn.LayerNorm(features, eps=1e-6)
        self.mlp = _Mlp(features)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attn(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class VisionTransformer(nn.Module):
    """Patches, a token of the class, learned places, blocks of attention; features are those of the token.

    Args:
        channels, height, width: of an image.
        patch: pixels of a patch's side, which divides height and width.
        features: width of all layers, a multiple of the number of heads.
    """

    def __init__(self, channels: int, height: int, width: int, patch: int, features: int) -> None:
        super().__init__()
        self.patch_embed = _Patches(channels, patch, features)
        self.cls_token = nn.Parameter(torch.empty(1, 1, features))
        self.pos_embed = nn.Parameter(torch.empty(1, 1 + (height // patch) * (width // patch), features))
        self.blocks = nn.Sequential(*(_Block(features) for _ in range(DEPTH)))
        self.norm = nn.LayerNorm(features, eps=1e-6)
        for embedding in (self.cls_token, self.pos_embed):
            nn.init.trunc_normal_(embedding, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        """Features ``[N, F]`` of images ``[N, C, H, W]``."""
        patches = self.patch_embed(images)
        tokens = torch.cat([self.cls_token.expand(len(patches), -1, -1), patches], dim=1)
        found: Tensor = self.norm(self.blocks(tokens + self.pos_embed))[:, 0]
        return found
