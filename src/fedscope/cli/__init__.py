"""Floor 7: the commands, one file each."""
