"""The networks of ``engine.py``: their sizes, and random samples of their real shape.

ResNet-56 with bottlenecks on images of CIFAR's size, a vision transformer of ViT-S's width and depth
(Touvron et al. 2021, DeiT) on images of 224 pixels, and GPT-2 small (Radford et al. 2019).
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fedscope.landscape import Batches
from fedscope.models import catalogue

CLASSES, STEPS = 100, 20
Made = tuple[nn.Module, Batches]


class Logits(nn.Module):
    """A network of transformers as a map of one tensor to logits."""

    def __init__(self, whole: nn.Module) -> None:
        super().__init__()
        self.whole = whole

    def forward(self, inputs: Tensor) -> Tensor:
        """Return logits (B, C) of images, or (B, T, V) of tokens."""
        logits: Tensor = self.whole(inputs).logits
        return logits


class MeanCrossEntropy(nn.CrossEntropyLoss):
    """Cross-entropy of logits (B, C) with classes (B,), or of (B, T, V) with the next tokens (B, T)."""

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the mean."""
        return super().forward(input.flatten(0, -2), target.flatten())


def resnet(tiny: bool) -> Made:
    """Return ResNet-56 and 2048 images of 32 pixels in batches of 256."""
    samples, size = (4, 2) if tiny else (2048, 256)
    model = catalogue.build("resnet56_bottleneck", CLASSES, 3, torch.Generator().manual_seed(0))
    return model, Batches(*_images(samples, 32), batch_size=size)


def vit(tiny: bool) -> Made:
    """Return a vision transformer of 22 million parameters and 32 images of 224 pixels in one batch."""
    from transformers import ViTConfig, ViTForImageClassification

    side, samples, width, depth = (32, 4, 24, 2) if tiny else (224, 32, 384, 12)
    config = ViTConfig(
        hidden_size=width, num_hidden_layers=depth, num_attention_heads=6, intermediate_size=4 * width,
        image_size=side, patch_size=16, num_labels=CLASSES, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0, attn_implementation="eager",
    )  # fmt: skip
    return Logits(ViTForImageClassification(config)), Batches(*_images(samples, side), batch_size=samples)


def gpt2(tiny: bool) -> Made:
    """Return GPT-2 small and 8 sequences of 256 tokens in batches of 4."""
    from transformers import GPT2Config, GPT2LMHeadModel

    words, length, width, depth = (101, 16, 24, 2) if tiny else (50257, 256, 768, 12)
    still = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    config = GPT2Config(
        vocab_size=words, n_embd=width, n_layer=depth, n_head=12, bos_token_id=0, eos_token_id=0,
        use_cache=False, attn_implementation="eager", **still,
    )  # fmt: skip
    tokens = torch.randint(words, (8, length + 1), generator=torch.Generator().manual_seed(0))
    return Logits(GPT2LMHeadModel(config)), Batches(tokens[:, :-1], tokens[:, 1:], batch_size=4)


NETWORKS: dict[str, Callable[[bool], Made]] = {"vit_small": vit, "gpt2": gpt2, "resnet56_bottleneck": resnet}


def built(name: str, tiny: bool, device: torch.device) -> Made:
    """Return a network after some steps of Adam on its samples, and not as it was drawn."""
    torch.manual_seed(0)
    model, batches = NETWORKS[name](tiny)
    model, batches, loss_fn = model.to(device), batches.to(device, torch.float32), MeanCrossEntropy()
    optimizer = torch.optim.Adam(model.train().parameters(), lr=3e-4)
    for step in range(STEPS):
        inputs, targets = batches[step % len(batches)]
        optimizer.zero_grad()
        loss_fn(model(inputs), targets).backward()
        optimizer.step()
    optimizer.zero_grad()
    return model.eval(), batches


def _images(samples: int, side: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(samples, 3, side, side, generator=generator)
    return images, torch.randint(CLASSES, (samples,), generator=generator)
