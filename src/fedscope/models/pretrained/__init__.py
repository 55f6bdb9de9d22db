"""Pretrained networks of Hugging Face's libraries, whole or with LoRA adapters."""
