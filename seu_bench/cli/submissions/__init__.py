"""Commands of a shared leaderboard: ``submit`` and ``check-submission``."""
