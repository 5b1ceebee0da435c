"""Run the plugin without installing it: register its module on a manager of one's own."""

import my_seu_plugin

from seu_bench.config import Request
from seu_bench.engine import launch
from seu_bench.plugin import Registry, load_plugins

manager = load_plugins()
manager.register(my_seu_plugin, name="mine")
registry = Registry(manager)
for request in (
    Request(strategy="heads_only", benchmark="split_stripes", options={"epochs": 2}),
    Request(benchmark="split_stripes", searcher="my_random", creator="newest", protocol="smoke"),
):
    record = launch(request, registry).record
    print(record.run_id, record.status, record.metrics["acc"], record.metrics["params_per_task"])
