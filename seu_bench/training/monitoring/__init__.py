"""What is measured while a strategy learns, and of what it has learned.

- ``evaluators``: Avalanche metrics of the accuracy matrix and of sizes
- ``attached``: plugins and metrics of Avalanche that are attached to a run
- ``memory``: what a strategy keeps from task to task, in bytes
- ``clipping``: how often gradients are clipped
- ``stability``: whether SGD can follow a penalty
- ``chance``: whether rewards say more than guesses would
"""
