"""Networks of the ``transformers`` package for the zoo, of small random configurations."""

from functools import partial
from typing import Any

import torch
import transformers as _transformers
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from .zoo import Animal

transformers: Any = _transformers  # its configurations' arguments are not typed
WORDS, LENGTH = 40, 6
SIZES = (4, 2)
TEXT: dict[str, Any] = {
    "vocab_size": WORDS,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 16,
}


def pictures() -> Any:
    """Return dicts of pixels and labels, as the package's image processors and collators make them."""
    return [{"pixel_values": torch.randn(n, 3, 32, 32), "labels": torch.randint(3, (n,))} for n in SIZES]


def classified() -> Any:
    """Return dicts of padded texts with a label each."""
    return [{**text, "labels": torch.randint(3, (len(text["input_ids"]),))} for text in _texts()]


def continued() -> Any:
    """Return dicts of texts that are their own labels; without padding, so that the loss is their mean."""
    ids = [torch.randint(1, WORDS, (n, LENGTH)) for n in SIZES]
    return [{"input_ids": i, "attention_mask": torch.ones_like(i), "labels": i} for i in ids]


def translated() -> Any:
    """Return dicts of padded texts with other texts as labels."""
    return [{**text, "labels": torch.randint(1, WORDS, (len(text["input_ids"]), 4))} for text in _texts()]


def _texts() -> list[dict[str, Tensor]]:
    found = []
    for n in SIZES:
        mask = (torch.arange(LENGTH) < torch.randint(3, LENGTH + 1, (n, 1))).long()
        found.append({"input_ids": torch.randint(1, WORDS, (n, LENGTH)) * mask, "attention_mask": mask})
    return found


def own_loss(output: Any, _batch: Any) -> Tensor:
    """The loss that the network computed from the labels in its batch."""
    loss: Tensor = output.loss
    return loss


def logits_loss(output: Any, labels: Tensor) -> Tensor:
    """Cross-entropy of the logits."""
    return cross_entropy(output.logits, labels)


def plain_pictures() -> Any:
    """Return pairs of pixels and labels."""
    return [(batch["pixel_values"], batch["labels"]) for batch in pictures()]


def _vit(**options: Any) -> nn.Module:
    config = transformers.ViTConfig(
        image_size=32, patch_size=8, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=24, num_labels=3, **options,
    )  # fmt: skip
    network: nn.Module = transformers.ViTForImageClassification(config)
    return network


def _convnext() -> nn.Module:
    config = transformers.ConvNextConfig(hidden_sizes=[4, 6, 8, 8], depths=[1, 1, 1, 1], num_labels=3)
    network: nn.Module = transformers.ConvNextForImageClassification(config)
    return network


def _resnet() -> nn.Module:
    config = transformers.ResNetConfig(
        embedding_size=4, hidden_sizes=[4, 6, 8, 8], depths=[1, 1, 1, 1], layer_type="basic", num_labels=3
    )
    network: nn.Module = transformers.ResNetForImageClassification(config)
    return network


def _bert() -> nn.Module:
    network: nn.Module = transformers.BertForSequenceClassification(
        transformers.BertConfig(**TEXT, num_labels=3)
    )
    return network


def _masked() -> nn.Module:
    network: nn.Module = transformers.BertForMaskedLM(transformers.BertConfig(**TEXT))
    return network


def _distilbert() -> nn.Module:
    config = transformers.DistilBertConfig(
        vocab_size=WORDS,
        dim=16,
        n_layers=2,
        n_heads=2,
        hidden_dim=24,
        max_position_embeddings=16,
        num_labels=3,
    )
    network: nn.Module = transformers.DistilBertForSequenceClassification(config)
    return network


def _gpt2(**options: Any) -> nn.Module:
    config = transformers.GPT2Config(
        vocab_size=WORDS,
        n_positions=16,
        n_embd=16,
        n_layer=2,
        n_head=2,
        bos_token_id=0,
        eos_token_id=0,
        **options,
    )
    network: nn.Module = transformers.GPT2LMHeadModel(config)
    return network


def _llama() -> nn.Module:
    network: nn.Module = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**TEXT, num_key_value_heads=1)
    )
    return network


def _t5() -> nn.Module:
    config = transformers.T5Config(
        vocab_size=WORDS, d_model=16, d_kv=8, d_ff=24, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    network: nn.Module = transformers.T5ForConditionalGeneration(config)
    return network


TRANSFORMERS: dict[str, Animal] = {
    "ViT": Animal(_vit, pictures, own_loss),
    "ViT, eager": Animal(partial(_vit, attn_implementation="eager"), plain_pictures, logits_loss),
    "ConvNeXt": Animal(_convnext, pictures, own_loss),
    "ResNet": Animal(_resnet, pictures, own_loss),
    "BERT": Animal(_bert, classified, own_loss, "plain"),
    "BERT, masked words": Animal(_masked, continued, own_loss, "plain"),
    "DistilBERT": Animal(_distilbert, classified, own_loss, "plain"),
    "GPT-2": Animal(_gpt2, continued, own_loss, "plain"),
    "GPT-2, eager": Animal(partial(_gpt2, attn_implementation="eager"), continued, own_loss, "plain"),
    "Llama": Animal(_llama, continued, own_loss, "plain"),
    "T5": Animal(_t5, translated, own_loss, "plain"),
}
