"""The clients of one round measured beside each other and the global model."""
