"""The evidence: docs/evidence/reproduction.md and its figures, made from published records."""
