"""One checkpoint file: its format, its checks, its description."""
