"""Performance measurements of seu-bench: ``make perf``, or ``python -m scripts.perf`` in the repository's root.

Each comparison is a process of its own, in which all that is compared is measured side by side. What they measured goes
to a JSON file, and the page is made from that.
"""
