"""Runs in folders, their index, and where they came from."""
