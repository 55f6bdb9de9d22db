"""Orthonormal rows of an algorithm: where their numbers are kept, in which precision, by which process."""
