"""Sharpness in its published definitions, of any PyTorch model: frozen results with errors and cost."""
