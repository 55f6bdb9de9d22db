"""A language model and an image classifier of transformers, small enough for tests, and data for them."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from fedscope.models.pretrained.networks import quietly
from fedscope.streams import seeded

TOPICS = {
    "sea": "wave ship salt gull tide the a of",
    "wood": "oak moss deer path leaf the a of",
    "town": "street lamp shop tram wall the a of",
}
END = "<|endoftext|>"
POSITIONS, WIDTH = 32, 16


def documents(count: int = 60) -> list[dict[str, str]]:
    """Return texts of 5 to 40 words, each with its topic, in turn."""
    draw, topics = random.Random(0), list(TOPICS)
    return [
        {
            "text": " ".join(draw.choices(TOPICS[topic].split(), k=draw.randint(5, 40))),
            "topic": topic,
        }
        for topic in (topics[number % 3] for number in range(count))
    ]


def write_corpus(path: Path, count: int = 60) -> Path:
    """Write the documents as lines of JSON."""
    path.write_text("".join(f"{json.dumps(one)}\n" for one in documents(count)), encoding="utf-8")
    return path


def write_language_model(folder: Path, dropout: float = 0.0, seed: int = 0) -> Path:
    """Write a GPT-2 of two blocks with random weights, and the tokenizer trained on the documents."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

    tokens: Any = Tokenizer(models.BPE())
    tokens.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokens.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=100, special_tokens=[END], show_progress=False)
    tokens.train_from_iterator([one["text"] for one in documents()], trainer)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, eos_token=END)
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=POSITIONS, n_embd=WIDTH, n_layer=2, n_head=2, bos_token_id=0,
        eos_token_id=0, resid_pdrop=dropout, embd_pdrop=dropout, attn_pdrop=dropout,
    )  # fmt: skip
    with quietly(), seeded(seed):
        GPT2LMHeadModel(config).save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    return folder


def write_image_model(folder: Path) -> Path:
    """Write a ViT of two blocks on 8-pixel images of two classes, and its image processor."""
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    config = ViTConfig(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, image_size=8,
        patch_size=4, num_labels=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    with quietly(), seeded(0):
        ViTForImageClassification(config).save_pretrained(folder)
        ViTImageProcessor(size={"height": 8, "width": 8}).save_pretrained(folder)
    return folder


def write_images(folder: Path, each: int = 10) -> Path:
    """Write dark and light noise as ``SPLIT/CLASS/NUMBER.png``."""
    draw = np.random.default_rng(0)
    for split, count in (("train", each), ("test", each // 2)):
        for shift, name in enumerate(("dark", "light")):
            place = folder / split / name
            place.mkdir(parents=True)
            for number in range(count):
                pixels = draw.integers(100 * shift, 100 * shift + 100, (12, 12, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(place / f"{number}.png")
    return folder


def sequences(count: int, length: int, vocabulary: int, seed: int = 0) -> torch.Tensor:
    """Return random tokens (count, length)."""
    return torch.randint(vocabulary, (count, length), generator=torch.Generator().manual_seed(seed))
