"""What a stream that is seen once asks of a strategy and of a request."""

from __future__ import annotations

from seu_bench.config.options import Options
from seu_bench.config.run import Request
from seu_bench.errors import RequestError, ScenarioError
from seu_bench.plugin.registry import Registry


def require_online(registry: Registry, request: Request, options: Options) -> None:
    """Refuse what cannot learn a stream without clear boundaries, and further epochs of one that is seen once."""

    def learns_it(name: str) -> bool:
        return bool(getattr(registry.strategies.find(name).factory, "learns_online", bool)())

    if not learns_it(request.strategy):
        what = f"strategy {request.strategy!r} does something where a task begins or ends, and this stream is online: "
        what += "each image comes once, and tasks share classes"
        remedy = f"choose one that needs no boundaries: {', '.join(filter(learns_it, registry.strategies))}"
        raise ScenarioError(what, where="stream.kind of the benchmark", remedy=remedy)
    for key in ("epochs", "first_epochs"):
        if (epochs := getattr(options, key, None)) not in (None, 1):
            what = f"{epochs} epochs are asked for, and an online stream is seen once"
            raise RequestError(what, where=f"-o {key}", remedy=f"leave {key} out")
    if request.evaluation == "validation":
        what = "accuracies are to be measured on withheld validation images, and an online stream has none"
        raise RequestError(what, where="stream.kind of the benchmark", remedy="choose a benchmark of another kind")
