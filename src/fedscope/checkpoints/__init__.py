"""Floor 1: self-describing checkpoints, and the registry that finds them again."""
