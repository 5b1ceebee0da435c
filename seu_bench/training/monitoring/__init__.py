"""What is measured while a strategy learns, and of what it has learned.

- ``evaluators``: Avalanche metrics of the accuracy matrix and of sizes; plugins and metrics that are attached to a run
- ``memory``: what a strategy keeps from task to task, in bytes
- ``learning``: what a stage notes: clipped gradients, unstable penalties, rewards at chance
"""
