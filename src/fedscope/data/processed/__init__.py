"""Text and images as a pretrained network's own tokenizer or image processor prepares them."""
