"""Sharpness of checkpoints in its published definitions, and how it goes with their generalisation gap."""
