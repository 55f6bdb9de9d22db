"""Drawings of eigenvalues, densities and clients."""
