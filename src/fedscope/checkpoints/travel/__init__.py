"""Runs that travel: pushed to a folder or a store elsewhere, pulled from there, or packed in a file."""
