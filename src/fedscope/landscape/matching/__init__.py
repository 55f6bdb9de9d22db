"""Networks of one function with their channels in another order, and the order nearest to another network."""
