"""Landscapes of checkpoints: which slice, evaluated and kept."""
