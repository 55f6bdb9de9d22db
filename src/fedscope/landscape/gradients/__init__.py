"""How much gradients scatter: over the samples of a client, and between clients."""
