"""A shared leaderboard without a server: a folder of runs that several people submit, and what is checked of them.

It has manifests in ``submissions``, which say who submits which runs with their digests, and the runs in ``runs``.
"""

from __future__ import annotations

from seu_bench import Register, hookimpl
from seu_bench.plugin.registration import CommandFactory, LazyCommand


@hookimpl
def register_commands(register: Register[CommandFactory]) -> None:
    """Offer ``submit`` and ``check-submission``."""
    what = "copy runs into a shared leaderboard's folder, and write the manifest"
    register("submit", LazyCommand("seu_bench_submissions.commands:submit", what))
    what = "check a shared leaderboard's folder: what a pull request's CI runs"
    register("check-submission", LazyCommand("seu_bench_submissions.commands:check_submission", what))
