"""What ``large.py`` measures: networks of 21 to 124 million parameters and their samples, made here.

    python large_jobs.py gpt2 FOLDER
    python large_jobs.py adapters FOLDER
    python large_jobs.py vit FOLDER [DATA_DIR]

GPT-2 small (Radford et al. 2019) has 124,439,808 parameters and a vocabulary of 50,257. Its weights are as
they are drawn; the text is a chain of words, of which each has four that follow it nine times in ten. The
adapters are peft's, of rank 8 in attention, with both factors drawn. The vision transformer has the width and
depth of ViT-S (Touvron et al. 2021, DeiT) on patches of 4 of CIFAR-100's pixels, after some steps of Adam.
"""

import itertools
import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import torch

WORDS, SEQUENCES, LENGTH = 50257, 2, 256
IMAGES, STEPS = 128, 20


def gpt2(folder: Path) -> None:
    """Write the network, its tokenizer (a word is a token), and as many documents as sequences."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast, set_seed

    words = ["<end>", *(f"w{word}" for word in range(1, WORDS))]
    tokens = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<end>"))
    tokens.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    PreTrainedTokenizerFast(tokenizer_object=tokens, eos_token="<end>").save_pretrained(folder / "base")
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
    GPT2LMHeadModel(GPT2Config(bos_token_id=0, eos_token_id=0, **still)).save_pretrained(folder / "base")


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


def vit(folder: Path, data_dir: Path | None) -> None:
    """Write the network, its image processor, and images of CIFAR-100's training set."""
    from PIL import Image
    from transformers import ViTConfig, ViTForImageClassification, ViTImageProcessor

    from fedscope.data.sets import catalogue

    train = catalogue.load("cifar100", data_dir=data_dir).train
    assert isinstance(train.images, torch.Tensor)
    rows = torch.randperm(len(train.labels), generator=torch.Generator().manual_seed(0))[:IMAGES].tolist()
    for part, taken in (("train", rows), ("test", rows[:1])):
        for row in taken:
            place = folder / "images" / part / f"{int(train.labels[row]):02}"
            place.mkdir(parents=True, exist_ok=True)
            Image.fromarray(train.images[row].movedim(0, 2).numpy()).save(place / f"{row}.png")
    torch.manual_seed(0)
    width, depth, heads = 384, 12, 6
    config = ViTConfig(
        hidden_size=width, num_hidden_layers=depth, num_attention_heads=heads, intermediate_size=4 * width,
        image_size=32, patch_size=4, num_labels=100, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    model = ViTForImageClassification(config)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-4)
    pixels, labels = train.images[rows] / 127.5 - 1, train.labels[rows]
    for step in range(STEPS):
        batch = torch.arange(16) + 16 * (step % (IMAGES // 16))
        optimizer.zero_grad()
        model(pixels[batch], labels=labels[batch]).loss.backward()
        optimizer.step()
    model.save_pretrained(folder / "vit")
    ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder / "vit")


if __name__ == "__main__":
    made: dict[str, Callable[..., None]] = {"gpt2": gpt2, "adapters": adapters, "vit": vit}
    made[sys.argv[1]](*map(Path, sys.argv[2:]))
