"""The Python face: what the commands do, as functions of what a notebook holds."""
