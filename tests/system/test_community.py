"""Files that forges and citation managers read: they parse, and say what the package says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from seu_bench import __version__

ROOT = Path(__file__).resolve().parents[2]
TEMPLATES = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
#: Kinds of fields that issue forms know.
FIELDS = {"checkboxes", "dropdown", "input", "markdown", "textarea"}


def load(path: Path) -> dict[str, object]:
    loaded = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert isinstance(loaded, dict)
    return loaded


def test_citation_is_of_this_version_and_paper() -> None:
    """The file, the README's entries and the package name one version and one paper."""
    citation, readme = load(ROOT / "CITATION.cff"), (ROOT / "README.md").read_text(encoding="utf-8")
    assert citation["version"] == __version__ and "](CITATION.cff)" in readme
    (paper,) = citation["references"]  # type: ignore[misc,attr-defined]
    assert f"title   = {{{paper['title']}}}" in readme
    assert {author["family-names"] for author in paper["authors"]} == {"Wang", "Hu", "Zhang"}


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_issue_forms(path: Path) -> None:
    """Each form has what a forge requires of it; unknown fields would make it drop the form silently."""
    form = load(path)
    if path.name == "config.yml":
        assert form == {"blank_issues_enabled": True}
        return
    assert {"name", "description", "body"} <= set(form)
    body = form["body"]
    assert isinstance(body, list) and len({field["id"] for field in body}) == len(body)
    assert all(field["type"] in FIELDS and field["attributes"]["label"] for field in body)


def test_pre_commit_runs_what_make_installs() -> None:
    """Hooks are programs of make's environment, which the lock installs at one version."""
    (local,) = load(ROOT / ".pre-commit-config.yaml")["repos"]  # type: ignore[misc,attr-defined]
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert local["repo"] == "local" and len(local["hooks"]) == 3
    for hook in local["hooks"]:
        program = re.match(r"\.venv/bin/(\w+)", hook["entry"])
        assert program and re.search(rf"^{program[1]}==", lock, re.MULTILINE), hook["entry"]
