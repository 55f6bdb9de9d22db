"""Curvature of checkpoints: requests in, records out."""
