"""One run, from request to record.

- ``launcher``: a run put together, for the command, the API and sweeps
- ``resolve``: requests resolved to validated runs
- ``runner``: a run made, or resumed
- ``recorder``: measurements of a run, and its record
- ``checkpoint``, ``checkpoint_manager``: checkpoint files; when they are written, and runs resumed from them
- ``run_folder``: a run's folder; the states of the runs of a results folder
- ``run_progress``: how far a run is, on disk for whoever watches
- ``stopping``: signals and time limits as requests to stop
- ``hooks``: watching hooks called
- ``option_sources``: where each option of a run comes from
- ``environment``: devices, versions and the git revision
- ``forecast``: seconds left of a run
- ``logging``: loggers, switched off when they fail
- ``saved_model``: models of finished runs saved, loaded, verified and exported
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .environment import describe_environment, installed_versions
    from .launcher import launch
    from .resolve import ResolvedRun
    from .run_folder import RunState, find_state, list_runs
    from .runner import Outcome, execute
    from .saved_model import LearnedModel, export_onnx, load_model
    from .stopping import StopRequest
    from .verification import Verification, verify

__all__ = [
    "LearnedModel",
    "Outcome",
    "ResolvedRun",
    "RunState",
    "StopRequest",
    "Verification",
    "describe_environment",
    "execute",
    "export_onnx",
    "find_state",
    "installed_versions",
    "launch",
    "list_runs",
    "load_model",
    "verify",
]

__getattr__, __dir__ = attach(__name__)
