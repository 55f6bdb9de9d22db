"""`fedscope runs`: a file for each kind of command on the registry."""
