"""Drawings of surfaces and lines."""
