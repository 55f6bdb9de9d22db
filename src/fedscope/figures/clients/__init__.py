"""Pictures of the clients of one round: gaps, alignment, the cost of averaging, matrices of pairs."""
