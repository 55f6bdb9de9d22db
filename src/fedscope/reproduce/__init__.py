"""The papers' tables and figures: what each needs, what the registry has of it, and what it becomes."""
