"""A connection to Ray: to a cluster that runs, or to one of this machine's own that ends with it."""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import Final
from urllib.parse import urlsplit

import ray

from seu_bench.errors import RequestError
from seu_bench.utils.hardware import usable_cores
from seu_bench.utils.text import printable

#: Seconds within which an address must answer.
_ANSWER: Final = 5.0
_REMEDY: Final = (
    "start Ray there (ray start --head), give the address that it names, or leave the address out to use this machine"
)


class Connection:
    """To Ray; what the caller's program is connected to already is used as it is, and stays.

    Args:
        address: ``auto``, ``HOST:PORT`` or ``ray://HOST:PORT``; ``None``: a Ray of this machine's own is started.

    Raises:
        RequestError: the address does not answer, or Ray cannot be started.
    """

    def __init__(self, address: str | None) -> None:
        self._is_ours = not ray.is_initialized()
        if not self._is_ours:
            return
        if address is not None and address != "auto":
            _ask(address)
        try:
            ray.init(
                address="local" if address is None else address,
                num_cpus=usable_cores() if address is None else None,
                include_dashboard=False if address is None else None,
                log_to_driver=False,
                logging_level=logging.ERROR,
                configure_logging=False,
            )
        except (ConnectionError, RuntimeError, ValueError, TimeoutError, OSError) as error:
            raise RequestError(
                f"Ray cannot be used: {printable(str(error).splitlines()[0])}",
                where=f"address {address}" if address is not None else "executor 'ray'",
                remedy=_REMEDY,
            ) from error

    @property
    def machines(self) -> int:
        """Machines that are connected now."""
        return max(1, sum(bool(node["Alive"]) for node in ray.nodes()))

    def room(self, cpus: float, gpus: float) -> int:
        """Number of jobs that fit at once, machine by machine.

        Args:
            cpus, gpus: of each.

        Raises:
            RequestError: no machine has room for one.
        """
        there = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        fitting = sum(
            int(min([has.get(kind, 0.0) / wanted for kind, wanted in (("CPU", cpus), ("GPU", gpus)) if wanted > 0]))
            for has in there
        )
        if fitting:
            return fitting
        largest = [max([has.get(kind, 0.0) for has in there], default=0.0) for kind in ("CPU", "GPU")]
        raise RequestError(
            f"no machine of this Ray has room for a job of {cpus:g} cores and {gpus:g} GPUs; the largest have "
            f"{largest[0]:g} cores, and {largest[1]:g} GPUs",
            where="executor 'ray'",
            remedy="ask for less with -o executor.cpus=N and -o executor.gpus=N, or add machines",
        )

    def wants_gpu(self, device: str) -> bool:
        """Whether a job on this device needs a GPU; ``auto`` takes one where there is any."""
        return device.startswith("cuda") or (device == "auto" and ray.cluster_resources().get("GPU", 0.0) > 0)

    def close(self) -> None:
        """Leave it; one that was started here ends."""
        if self._is_ours:
            ray.shutdown()
            self._is_ours = False


def _ask(address: str) -> None:
    """Check that the address is valid and answers; Ray itself would wait for a minute."""
    try:
        parts = urlsplit(address if "://" in address else f"ray://{address}")
        host, port = parts.hostname, parts.port
    except ValueError:
        host = port = None
    if not host or not port:
        raise RequestError(f"{address!r} is no address of a Ray", remedy="give auto, HOST:PORT or ray://HOST:PORT")
    try:
        with contextlib.closing(socket.create_connection((host, port), timeout=_ANSWER)):
            return
    except OSError as error:
        raise RequestError(
            f"nobody answers at {host}:{port}: {error.strerror or error}", where=f"address {address}", remedy=_REMEDY
        ) from error
