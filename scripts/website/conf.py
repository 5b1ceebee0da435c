"""Sphinx's configuration; ``python -m scripts.website`` calls it, with sources that it has put together."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from scripts.website.extension import register  # noqa: E402
from seu_bench import __version__  # noqa: E402

project = "seu-bench"
author = "the founders of seu-bench"
version = release = __version__
copyright = "the founders of seu-bench, MIT"

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "myst_nb"]
root_doc = "index"
templates_path = [str(Path(__file__).parent / "templates")]
nitpicky = False  # references to private names are plain text
toc_object_entries_show_parents = "hide"

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "mixed"
autodoc_default_options = {"show-inheritance": True}
python_use_unqualified_type_names = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False

myst_heading_anchors = 4
# A dollar sign is one of the shell's: formulas are written in code, which needs no script to be shown.
myst_enable_extensions: list[str] = []
nb_execution_mode = "off"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
nb_merge_streams = True
nb_output_stderr = "remove"  # tqdm asks for ipywidgets

html_theme = "furo"
html_title = f"seu-bench {release}"
html_show_sphinx = False
html_copy_source = False
html_static_path = [str(Path(__file__).parent / "static")]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
html_sidebars = {
    "**": [
        "sidebar/brand.html",
        "versions.html",
        "sidebar/search.html",
        "sidebar/scroll-start.html",
        "sidebar/navigation.html",
        "sidebar/scroll-end.html",
    ]
}

setup = register
