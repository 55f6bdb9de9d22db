"""Floor 1: the networks. Each returns logits; its ReLUs are modules of their own, so that hooks can tap them."""
