"""The local loop of a client, and all it touches."""
