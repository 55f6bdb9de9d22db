"""Data sets by name: what each is and where it is."""
