"""What the site adds to Sphinx: tables of contents from docs/README.md, fields of options, names by private modules."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Mapping
from typing import Any, Final

from docutils import nodes  # type: ignore[import-untyped]
from pydantic import BaseModel
from pydantic_core import PydanticUndefined
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

from scripts.public_api import rooms
from scripts.website.reference import FOLDER
from scripts.website.registered import KINDS, slug

#: A section of docs/README.md, and its links.
_SECTION: Final = re.compile(r"^\*\*(?P<name>[A-Z]\w+)\*\*(?P<links>.*?)(?=^\*\*|\Z)", re.DOTALL | re.MULTILINE)
_LINK: Final = re.compile(r"\[[^\]]+\]\((?P<page>[^):#]+)\.(?:md|ipynb)\)")
_LINK_BACK: Final = re.compile(r'(?P<begin><a class="viewcode-back" href=")[^"#]*#(?P<name>[^"]+)"')
#: A row of docs/questions.md: words, and the first page that it links to.
_QUESTION: Final = re.compile(
    r"^\| (?P<words>[^|]+) \| \[[^\]]+\]\((?P<page>[^):#]+)\.md(?:#(?P<anchor>[^)]+))?\)", re.MULTILINE
)
#: Pages that no section lists.
_PROJECT: Final = ("README", "CHANGELOG", "CONTRIBUTING", "SECURITY")


def register(app: Sphinx) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("source-read", add_contents)
    app.connect("source-read", add_index_entries)
    app.connect("autodoc-process-docstring", describe_fields)
    app.connect("autodoc-process-signature", leave_out_fields)
    app.connect("autodoc-skip-member", skip_inherited_configuration)
    places = public_places()
    app.connect("missing-reference", functools.partial(find_by_module, places))
    app.connect("viewcode-follow-imported", functools.partial(defining_module, places))
    app.connect("html-page-context", functools.partial(mend_links_back, places))
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def add_contents(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give the home page hidden tables of contents: the sections of docs/README.md, in its order."""
    if docname != "index":
        return
    contents = (app.srcdir / "docs" / "README.md").read_text(encoding="utf-8")
    source[0] += _toctree("", ["docs/README", "docs/questions", *(f"docs/{kind}/index" for kind in KINDS)])
    for section in _SECTION.finditer(contents):
        pages = [f"docs/{found['page']}" for found in _LINK.finditer(section["links"]) if ".." not in found["page"]]
        if section["name"] == "Reference":
            pages.insert(0, f"docs/{FOLDER}/index")
        if section["name"] == "Evidence":
            pages += sorted(
                f"results/published/{path.stem}" for path in (app.srcdir / "results" / "published").glob("*.md")
            )
        source[0] += _toctree(section["name"], pages)
    source[0] += _toctree("Project", _PROJECT)


def add_index_entries(app: Sphinx, docname: str, source: list[str]) -> None:
    """Give pages the words of docs/questions.md as entries of the index, which search ranks above everything else."""
    for row in _QUESTION.finditer((app.srcdir / "docs" / "questions.md").read_text(encoding="utf-8")):
        if docname != f"docs/{row['page']}":
            continue
        before, heading = source[0], ""
        for found in re.finditer(r"^#+ (.+)$", source[0], re.MULTILINE):
            if (row["anchor"] or slug(found[1])) == slug(found[1]):
                before, heading = source[0][: found.start()], source[0][found.start() :]
                break
        main = ", ".join(f"!{word.strip()}" for word in row["words"].split(","))
        source[0] = f"{before}```{{index}} {main}\n```\n\n{heading}"


def _toctree(caption: str, pages: Any) -> str:
    lines = "\n".join(pages)
    captioned = f":caption: {caption}\n" if caption else ""
    return f"\n\n```{{toctree}}\n:hidden:\n{captioned}\n{lines}\n```\n"


def describe_fields(app: Sphinx, what: str, name: str, value: object, options: object, lines: list[str]) -> None:
    """Append to the docstring of a model of pydantic its own fields, with types, defaults and descriptions."""
    if what != "class" or not (isinstance(value, type) and issubclass(value, BaseModel)):
        return
    own = [field for field in value.model_fields if field in inspect.get_annotations(value)]
    if not own or any("Attributes:" in line or ":ivar" in line or ".. attribute::" in line for line in lines):
        return
    lines += ["", "**Fields**", ""]
    for field in own:
        info = value.model_fields[field]
        given = "required" if info.default is PydanticUndefined and info.default_factory is None else None
        default = given or ("" if info.default is PydanticUndefined else f"default ``{info.default!r}``")
        kind = str(value.__annotations__[field]).replace("typing.", "")
        lines.append(f"- ``{field}``: ``{kind}``{', ' if default else ''}{default}. {info.description or ''}".rstrip())
    lines.append("")


def leave_out_fields(
    app: Sphinx, what: str, name: str, value: object, options: object, arguments: str | None, returned: str | None
) -> tuple[str, str | None] | None:
    """Say nothing of a model's fields in its signature: :func:`describe_fields` does."""
    is_model = what == "class" and isinstance(value, type) and issubclass(value, BaseModel)
    return ("", returned) if is_model else None


def skip_inherited_configuration(
    app: Sphinx, what: str, name: str, value: object, skip: bool, options: object
) -> bool | None:
    """Leave out what pydantic puts into each model."""
    return True if name in {"model_config", "model_post_init"} else None


def find_by_module(
    places: Mapping[str, str], app: Sphinx, env: BuildEnvironment, node: pending_xref, shown: nodes.Element
) -> nodes.Element | None:
    """Find a public name by the module that defines it, as docstrings name it; ``places`` are :func:`public_places`."""
    wanted = node.get("reftarget", "").lstrip(".~")
    if node.get("refdomain") != "py" or not wanted:
        return None
    found = places.get(wanted) or places.get(f"{node.get('py:module')}.{wanted}")
    if found is None:
        return None
    domain = env.domains.python_domain
    matches = domain.find_obj(env, "", "", found, None, 0)
    if not matches:
        return None
    _, (docname, anchor, _, _) = matches[0]
    made = nodes.reference("", "", internal=True)
    made["refuri"] = app.builder.get_relative_uri(node["refdoc"], docname) + "#" + anchor
    made += shown
    return made


def public_places() -> dict[str, str]:
    """Names as their modules define them, and below which name they are documented."""
    places: dict[str, str] = {}
    for room, modules in rooms():
        for module, names in modules.items():
            for name in names:
                places.setdefault(f"{module}.{name}", f"{room}.{name}")
                places.setdefault(f"{room}.{name}", f"{room}.{name}")
    return places


def defining_module(places: Mapping[str, str], app: Sphinx, room: str, name: str | None) -> str | None:
    """The module that has the source of a room's public name; ``places`` are :func:`public_places`."""
    top = (name or "").partition(".")[0]
    defined = (place for place, public in places.items() if public == f"{room}.{top}" and place != public)
    return next((place.removesuffix(f".{top}") for place in defined), None)


def mend_links_back(
    places: Mapping[str, str], app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: object
) -> None:
    """Correct the links of a module's source back to the reference.

    viewcode takes all names of a module for names of one room, and two rooms may offer some each.
    """
    if not page.startswith("_modules/") or "body" not in context:
        return
    module = page.removeprefix("_modules/").replace("/", ".")
    objects = app.env.domains.python_domain.objects

    def mended(found: re.Match[str]) -> str:
        if found["name"] in objects:
            return found[0]
        room, _, rest = found["name"].rpartition(".")
        for own in (rest, f"{room.rpartition('.')[2]}.{rest}"):
            top, _, member = own.partition(".")
            name = f"{places.get(f'{module}.{top}')}.{member}".rstrip(".")
            if name in objects:
                uri = app.builder.get_relative_uri(page, objects[name].docname)
                return f'{found["begin"]}{uri}#{name}"'
        return '<a class="viewcode-back"'

    context["body"] = _LINK_BACK.sub(mended, context["body"])
