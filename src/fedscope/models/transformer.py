"""A small Vision Transformer for CIFAR (Dosovitskiy et al. 2021, Eqs. 1 to 4), in plain operations.

Patches of 4×4 pixels become tokens of width D, beside a learned class token, with learned positions added:
z ← z + MSA(LN(z)), z ← z + MLP(LN(z)) in every block, and the logits are a linear map of LN of the class
token. Attention is written out, because PyTorch's fused kernels have no second derivative, or no batched one.
"""

import torch
from torch import Tensor, nn


class Attention(nn.Module):
    """Multi-head self-attention: softmax(QKᵀ/√d)V of every head of width d."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, z: Tensor) -> Tensor:
        """Map tokens (B, T, D) to (B, T, D)."""
        # each (B, heads, T, d)
        q, k, v = (
            self.qkv(z).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        )  # each (B, heads, T, d)
        weights = (q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5).softmax(-1)
        mixed: Tensor = self.out((weights @ v).transpose(1, 2).flatten(2))
        return mixed


class Encoder(nn.Module):
    """A block: attention, and a two-layer perceptron of four times the width, each beside a shortcut."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, z: Tensor) -> Tensor:
        z = z + self.attention(self.norm1(z))
        out: Tensor = z + self.mlp(self.norm2(z))
        return out


class VisionTransformer(nn.Module):
    """Patches, class token, positions, blocks, and a linear classifier of the class token."""

    def __init__(
        self, classes: int, channels: int, *, side: int, patch: int, width: int, depth: int, heads: int
    ):
        super().__init__()
        self.patches = nn.Conv2d(channels, width, patch, patch)
        self.token = nn.Parameter(torch.empty(1, 1, width))
        self.position = nn.Parameter(torch.empty(1, 1 + (side // patch) ** 2, width))
        self.blocks = nn.Sequential(*(Encoder(width, heads) for _ in range(depth)))
        self.norm = nn.LayerNorm(width)
        self.fc = nn.Linear(width, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Map images (B, channels, side, side) to logits (B, classes)."""
        z = self.patches(x).flatten(2).transpose(1, 2)
        z = torch.cat([self.token.expand(len(z), -1, -1), z], 1) + self.position
        logits: Tensor = self.fc(self.norm(self.blocks(z)[:, 0]))
        return logits


def vit_cifar(classes: int, channels: int = 3) -> VisionTransformer:
    """Return a ViT of 64 patches of 4×4 pixels, width 192 in 3 heads, and 6 blocks.

    The width and heads of the smallest published ViT (DeiT-Ti, Touvron et al. 2021), and half of its depth.
    Input (B, channels, 32, 32). No dropout, so that every pass is the same function.
    """
    return VisionTransformer(classes, channels, side=32, patch=4, width=192, depth=6, heads=3)
