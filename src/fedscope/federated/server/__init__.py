"""The server: rounds, averages, memory, evaluation."""
