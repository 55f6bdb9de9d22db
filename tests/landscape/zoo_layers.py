"""Networks for the zoo that recur, attend, or take and return more than one tensor."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CLASSES = 4
WORDS = 20


class Recurrent(nn.Module):
    """Embedded words through an LSTM or GRU; the last state is classified."""

    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 6, padding_idx=0)
        self.rnn = kind(6, 5, num_layers=2, batch_first=True, bidirectional=True, dropout=0.2)
        self.fc = nn.Linear(10, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        out, _ = self.rnn(self.embedding(x))
        logits: Tensor = self.fc(out[:, -1])
        return logits


class TextCNN(nn.Module):
    """Kim 2014: convolutions of several widths over the words, each with its maximum over time."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 6)
        self.convs = nn.ModuleList(nn.Conv1d(6, 4, width) for width in (2, 3))
        self.norm, self.dropout, self.fc = nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        words = self.embedding(x).permute(0, 2, 1)
        pooled = [F.relu(conv(words)).max(dim=2).values for conv in self.convs]
        logits: Tensor = self.fc(self.dropout(self.norm(torch.cat(pooled, 1))))
        return logits


class BagOfWords(nn.Module):
    """The mean of the words' embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.bag, self.fc = nn.EmbeddingBag(WORDS, 6), nn.Linear(6, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.fc(self.bag(x))
        return logits


class Attending(nn.Module):
    """Self-attention with a mask of what is padding, and its weights among the outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.fc = nn.Linear(8, CLASSES)

    def forward(self, words: Tensor, padding: Tensor) -> tuple[Tensor, Tensor]:
        x = self.embedding(words)
        mixed, weights = self.attention(x, x, x, key_padding_mask=padding.bool())
        return self.fc(mixed.mean(1)), weights


class Encoder(nn.Module):
    """``nn.TransformerEncoder`` with a causal mask and the words' embedding as the last layer, tied."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(WORDS, 8)
        layer = nn.TransformerEncoderLayer(8, 2, dim_feedforward=12, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, num_layers=2)
        self.scores = nn.Linear(8, WORDS, bias=False)
        self.scores.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        hidden = self.encoder(self.embedding(x), mask=mask, is_causal=True)
        scores: Tensor = self.scores(hidden)
        return scores.transpose(1, 2)


class TwoTowers(nn.Module):
    """Two inputs, an image and a text, compared by a bilinear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.image = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.text = nn.Embedding(WORDS, 5)
        self.compare = nn.Bilinear(4, 5, CLASSES)

    def forward(self, image: Tensor, text: Tensor) -> Tensor:
        logits: Tensor = self.compare(self.image(image), self.text(text).mean(1))
        return logits


class Scores(NamedTuple):
    """Outputs by name."""

    logits: Tensor
    features: Tensor


@dataclass
class Prediction:
    """Outputs as a record."""

    logits: Tensor
    uncertainty: Tensor | None = None


class Perceptron(nn.Module):
    """A hidden layer; ``wrap`` makes of logits and features what the network returns."""

    def __init__(self, wrap: Callable[[Tensor, Tensor], Any] = lambda logits, _: logits) -> None:
        super().__init__()
        self.hidden, self.out, self.wrap = nn.Linear(7, 6), nn.Linear(6, CLASSES), wrap

    def forward(self, x: Tensor) -> Any:
        features = torch.tanh(self.hidden(x))
        return self.wrap(self.out(features), features)


class Spectral(nn.Module):
    """A layer in the frequency domain, as in Fourier neural operators: complex weights as pairs of reals."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.modes = nn.Conv1d(1, 4, 1), nn.Parameter(0.3 * torch.randn(4, 4, 3, 2))
        self.skip, self.fc = nn.Conv1d(4, 4, 1), nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.lift(x[:, None])
        low = torch.fft.rfft(x)[..., :3]
        mixed = torch.fft.irfft(
            torch.einsum("bim,iom->bom", low, torch.view_as_complex(self.modes)), n=x.shape[-1]
        )
        logits: Tensor = self.fc(F.gelu(mixed + self.skip(x)).mean(-1))
        return logits


class Complex(nn.Module):
    """Complex parameters, which the Hessian of this package has no coordinates for."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(7, CLASSES, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        return (x.to(torch.complex64) @ self.weight).abs()
