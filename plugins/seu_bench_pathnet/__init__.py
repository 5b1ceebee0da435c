"""PathNet."""
