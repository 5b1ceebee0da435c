"""One run, from request to record.

- ``launcher``: a run put together, for the command, the API and sweeps
- ``resolve``: requests resolved to validated runs
- ``runner``, ``resume``: a run made, or resumed from a checkpoint
- ``recorder``: measurements of a run, and its record
- ``checkpoint``, ``checkpoint_manager``: checkpoint files, and when they are written
- ``run_folder``, ``run_states``: a run's folder; the states of the runs of a results folder
- ``stopping``: signals and time limits as requests to stop
- ``hook_caller``: watching hooks called
- ``loggers``: loggers called, and switched off when they fail
- ``environment``: devices, versions and the git revision
- ``forecast``: seconds left of a run
- ``saved_model``: models of finished runs saved, loaded, verified and exported
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from seu_bench.utils.lazy import attach

if TYPE_CHECKING:
    from .environment import describe_environment, installed_versions
    from .launcher import launch
    from .resolve import ResolvedRun
    from .run_states import RunState, find_state, list_runs
    from .runner import Outcome, execute
    from .saved_model.checks import Verification
    from .saved_model.export import export_onnx
    from .saved_model.load import LearnedModel, load_model
    from .saved_model.verify import verify
    from .stopping import StopRequest

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
