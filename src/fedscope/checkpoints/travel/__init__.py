"""Runs that travel: pushed to a folder or a store elsewhere, and pulled from there."""
