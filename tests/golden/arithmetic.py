"""The arithmetic of this machine: what a few operations give, to the last bit."""

import hashlib

import torch
from torch.nn.functional import conv2d, cross_entropy


def fingerprint() -> str:
    """Return a hash of results whose last bits depend on the processor and on PyTorch's build."""
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(0)
    content = hashlib.sha256(torch.__version__.encode())
    for dtype in (torch.float32, torch.float64):
        for size in (8, 64, 256):
            one, other = (torch.randn(size, size, generator=generator, dtype=dtype) for _ in range(2))
            product = one @ other
            results = (product, product.exp().sum(1), product.softmax(1), one.tanh().mean(0), product.norm())
            for found in (*results, torch.linalg.eigvalsh(one + one.T), torch.linalg.qr(one)[0]):
                content.update(found.contiguous().numpy().tobytes())
        images = torch.randn(32, 8, 8, 8, generator=generator, dtype=dtype)
        weights = torch.randn(16, 8, 3, 3, generator=generator, dtype=dtype, requires_grad=True)
        outputs = conv2d(images, weights, padding=1).mean((2, 3))
        loss = cross_entropy(outputs, torch.arange(32) % 16)
        (gradient,) = torch.autograd.grad(loss, weights, create_graph=True)
        (second,) = torch.autograd.grad(gradient.square().sum(), weights)
        content.update(gradient.detach().numpy().tobytes() + second.numpy().tobytes())
    return content.hexdigest()[:16]
