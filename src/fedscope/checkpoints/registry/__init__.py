"""Runs in folders, their index, and how they are packed and traced."""
