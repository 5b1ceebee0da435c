"""Templates of pages of Markdown, beside the scripts that fill them."""

from __future__ import annotations

from pathlib import Path

import jinja2


def template(name: str) -> jinja2.Template:
    """A template by the name of its file; a value that it names and is not given is an error."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # Markdown, of our own records
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)
