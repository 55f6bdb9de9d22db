"""What operators do as matrices do: linear combinations, and exports to other forms."""
