"""What products tell of a spectrum: eigenvalues, trace, diagonal, density."""
