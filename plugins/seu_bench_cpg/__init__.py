"""CPG: compacting, picking and growing."""
