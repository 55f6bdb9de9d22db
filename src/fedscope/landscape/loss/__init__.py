"""The loss of a network as a function of its parameters, on fixed batches."""
