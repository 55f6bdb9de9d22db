"""Parts of a network whose intermediate results are computed again instead of kept."""
