"""Floor 2: the analysis."""
