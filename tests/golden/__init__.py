"""A golden day: the numbers of many commands, written down, and compared digit by digit (``make golden``)."""
