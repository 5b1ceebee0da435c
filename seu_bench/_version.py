"""The version, without importing anything."""

__version__ = "0.2.0"
