"""The record of a table or figure, and what is claimed of its numbers."""
