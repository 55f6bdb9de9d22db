"""The papers' tables and figures: the runs they need, those in the registry, and the artefacts."""
