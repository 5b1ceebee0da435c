"""The evidence: docs/reproduction.md and its figures, made from published records."""
