"""Dynamically expandable networks."""
