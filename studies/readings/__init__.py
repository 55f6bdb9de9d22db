"""How a paper measured its table: every way that one could hold, by likelihood."""
