"""Reinforced continual learning."""
