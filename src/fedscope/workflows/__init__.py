"""Floor 5: what a command does, as functions that anyone can call."""
