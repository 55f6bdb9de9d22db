"""Lanczos processes: their steps, where they begin, what their bases tell, and what they may have missed."""
