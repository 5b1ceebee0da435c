"""``python -m seu_bench`` is the command ``seu-bench``."""

from __future__ import annotations

from seu_bench.cli.main import main

if __name__ == "__main__":
    main()
