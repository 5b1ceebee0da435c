"""Run the plugin without installing it: register its module on a manager of one's own."""

from pathlib import Path

import my_seu_plugin

from seu_bench.config.run import Execution, Request
from seu_bench.engine.resolve import resolve
from seu_bench.engine.runner import execute
from seu_bench.plugin.manager import load_plugins
from seu_bench.plugin.registry import Registry

manager = load_plugins()
manager.register(my_seu_plugin, name="mine")
registry = Registry(manager)
for request in (
    Request("heads_only", "split_stripes", options={"epochs": 2}),
    Request("seu", "split_stripes", "my_random", "newest", "smoke"),
):
    record = execute(registry, resolve(registry, request), Execution(Path("results"))).record
    print(record.run_id, record.status, record.metrics["acc"], record.metrics["params_per_task"])
