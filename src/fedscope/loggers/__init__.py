"""Floor 3: where the metrics of a run go while it is trained, beside its own ``metrics.jsonl``."""
