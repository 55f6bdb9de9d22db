"""Floor 4: the commands, one file each."""
