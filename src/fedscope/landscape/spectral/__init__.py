"""Estimates of a spectrum from products: eigenvalues, trace, diagonal, density."""
