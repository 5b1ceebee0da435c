"""``python -m seu_bench`` is the command ``seu-bench``."""

from __future__ import annotations

import sys

if __name__ == "__main__":
    if not sys.flags.safe_path:
        # As for the command: a file of the working folder, such as torch.py, must not take the place of a package.
        del sys.path[0]
    from seu_bench.cli.main import main

    main()
