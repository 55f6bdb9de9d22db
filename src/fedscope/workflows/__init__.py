"""Floor 4: what a command does, as functions that anyone can call."""
