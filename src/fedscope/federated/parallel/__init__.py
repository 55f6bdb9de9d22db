"""The processes of a run, and which client each trains."""
