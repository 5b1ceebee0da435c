"""What setup.cfg cannot say: how the packages are found where this folder is installed in place (``pip install -e .``).

The packages lie in several folders, and the benchmarks' under another name. For such a layout setuptools installs an
import hook, which type checkers and editors cannot follow. Instead, one folder gets a link to each package, and that
folder is what the installation adds to ``sys.path``; new modules are seen at once.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.editable_wheel import editable_wheel

#: Folder of the links, beside this file.
LINKS = ".editable"


class LinkedWheel(editable_wheel):
    """Installs in place by a folder of links; as setuptools does by itself where links cannot be made."""

    def finalize_options(self) -> None:
        """Make the links, and name their folder as the one that every package lies in."""
        super().finalize_options()
        links = Path(__file__).resolve().parent / LINKS
        shutil.rmtree(links, ignore_errors=True)
        links.mkdir()
        try:
            for package, folder in self.distribution.package_dir.items():
                (links / package).symlink_to(Path("..") / folder, target_is_directory=True)
        except OSError:  # Windows without the right to make links
            shutil.rmtree(links, ignore_errors=True)
            return
        self.package_dir = self.distribution.package_dir = {"": LINKS}


setup(cmdclass={"editable_wheel": LinkedWheel})
