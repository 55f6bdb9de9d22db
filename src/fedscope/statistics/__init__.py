"""Errors and intervals of estimates."""
