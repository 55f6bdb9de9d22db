"""Drawings of whole runs."""
