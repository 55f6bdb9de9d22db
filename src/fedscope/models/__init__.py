"""Floor 1: the networks. Each returns logits; its ReLUs are modules, so that hooks can tap them."""
