"""Means over batches, and how processes share the batches."""
