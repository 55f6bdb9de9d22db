"""Checkpoints that other programs wrote."""
