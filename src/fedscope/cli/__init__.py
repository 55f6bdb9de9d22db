"""Floor 4: the commands, one file each; console.py is everything about the terminal."""
