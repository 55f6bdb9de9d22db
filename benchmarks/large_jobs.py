"""What ``large.py`` measures: networks of 21 to 124 million parameters and their samples, made here.

    python large_jobs.py gpt2 FOLDER
    python large_jobs.py adapters FOLDER
    python large_jobs.py vit FOLDER [DATA_DIR]

GPT-2 small (Radford et al. 2019) has 124,439,808 parameters and a vocabulary of 50,257; the text is a chain
of words, of which each has four that follow it nine times in ten. The vision transformer has the width and
depth of ViT-S (Touvron et al. 2021, DeiT) on patches of 4 of CIFAR-100's pixels. Both take 20 steps of Adam
on their samples. The adapters are peft's, of rank 8 in GPT-2's attention, with both factors drawn.
"""

import itertools
import json
import random
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch

WORDS, SEQUENCES, LENGTH = 50257, 2, 256
IMAGES, STEPS = 32, 20


def train(model: torch.nn.Module, batches: Iterable[Mapping[str, torch.Tensor]]) -> None:
    """Take a step of Adam on each of the first batches."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    for batch in itertools.islice(batches, STEPS):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()


def gpt2(folder: Path) -> None:
    """Write the network, its tokenizer (a word is a token), and as many documents as sequences."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed

    words = ["<end>", *(f"w{word}" for word in range(1, WORDS))]
    tokens = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<end>"))
    tokens.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokens, eos_token="<end>")
    tokenizer.save_pretrained(folder / "base")
    (folder / "text").mkdir()
    draw, common = random.Random(0), list(itertools.accumulate(1 / rank for rank in range(1, WORDS)))
    follow: dict[str, list[str]] = {}
    for part in ("train", "test"):
        with (folder / "text" / f"{part}.jsonl").open("w") as file:
            for _ in range(SEQUENCES):
                chain = draw.choices(words[1:], cum_weights=common)
                while len(chain) < LENGTH:
                    next_ = follow.setdefault(chain[-1], draw.choices(words[1:], cum_weights=common, k=4))
                    chain += draw.choices(next_ if draw.random() < 0.9 else words[1:])
                print(json.dumps({"text": " ".join(chain)}), file=file)
    set_seed(0)
    still = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    model = GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=0, **still))
    texts = [json.loads(line)["text"] for line in (folder / "text" / "train.jsonl").open()]
    rows = [tokenizer(text, return_tensors="pt").input_ids[:, :LENGTH] for text in texts]
    train(model, ({"input_ids": row, "labels": row} for row in itertools.cycle(rows)))
    model.save_pretrained(folder / "base")


def adapters(folder: Path) -> None:
    """Write the same, and adapters of the network."""
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    gpt2(folder)
    torch.manual_seed(0)
    config = LoraConfig(r=8, lora_alpha=16, target_modules=["c_attn"], fan_in_fan_out=True)
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(str(folder / "base")), config)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.02)
    model.save_pretrained(str(folder / "adapters"))


def vit(folder: Path, data_dir: Path | None = None) -> None:
    """Write the network, its image processor, and images of CIFAR-100's training set."""
    from PIL import Image
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    from fedscope.data.sets import dataset_catalogue

    images = dataset_catalogue.load("cifar100", data_dir=data_dir).train
    assert isinstance(images.images, torch.Tensor)
    rows = torch.randperm(len(images.labels), generator=torch.Generator().manual_seed(0))[:IMAGES].tolist()
    for part, taken in (("train", rows), ("test", rows[:1])):
        for row in taken:
            place = folder / "images" / part / f"{int(images.labels[row]):02}"
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(images.images[row].movedim(0, 2).numpy()).save(place / f"{row}.png")
    torch.manual_seed(0)
    width, depth, heads = 384, 12, 6
    config = ViTConfig(
        hidden_size=width, num_hidden_layers=depth, num_attention_heads=heads, intermediate_size=4 * width,
        image_size=32, patch_size=4, num_labels=100, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = ViTForImageClassification(config)
    pixels, labels = images.images[rows] / 127.5 - 1, images.labels[rows]
    batches = zip(itertools.cycle(pixels.split(16)), itertools.cycle(labels.split(16)), strict=False)
    train(model, ({"pixel_values": inputs, "labels": targets} for inputs, targets in batches))
    model.save_pretrained(folder / "vit")
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder / "vit")


if __name__ == "__main__":
    made: dict[str, Callable[..., None]] = {"gpt2": gpt2, "adapters": adapters, "vit": vit}
    made[sys.argv[1]](*map(Path, sys.argv[2:]))
