"""A package installed as a stranger's would be."""

from __future__ import annotations

import shutil
import site
import subprocess
import sys
import venv
from pathlib import Path


class Environment:
    """A virtual environment that has the package, sees what is installed here, and nothing of it is seen here.

    Args:
        example: folder of the package.
        folder: an empty one, for environment and copy.
    """

    def __init__(self, example: Path, folder: Path) -> None:
        self.folder = folder
        venv.create(folder / "env", with_pip=False)
        (self.python,) = (folder / "env").glob("bin/python")
        (packages,) = (folder / "env" / "lib").glob("python*/site-packages")
        ours = [path for path in site.getsitepackages() if Path(path).is_dir()]
        (packages / "ours.pth").write_text("".join(f"import site; site.addsitedir({path!r})\n" for path in ours))
        self.copy = folder / "package"
        shutil.copytree(example, self.copy, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info", "build"))
        pip = ["-m", "pip", "--python", str(self.python), "install", "--quiet", "--no-deps", "--no-build-isolation"]
        done = subprocess.run([sys.executable, *pip, str(self.copy)], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    def __call__(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        """Run Python there, in an empty folder."""
        elsewhere = self.folder / "elsewhere"
        elsewhere.mkdir(exist_ok=True)
        command = [str(self.python), *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=elsewhere)
