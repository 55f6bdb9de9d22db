"""What operators do as matrices do: linear combinations, and vectors as tensors by parameter name."""
