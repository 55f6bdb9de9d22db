"""Bases of algorithms: their rows, in memory or in a file, and what they know of an operator."""
