"""Sweeps: one job for each checkpoint and each value of an option, on this machine or as a Slurm array."""
