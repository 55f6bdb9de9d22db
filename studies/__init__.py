"""Inferences about single papers, which stand in the gallery beside what the package rebuilds."""
