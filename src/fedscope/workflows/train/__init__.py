"""Training: from what a user asks for to registered checkpoints."""
