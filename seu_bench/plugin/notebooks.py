"""Source of a class that is written in cells of a notebook, so that other processes can import it."""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterable


def notebook_source(name: str, cells: Iterable[str]) -> str:
    """Return the statements of a notebook that a name needs.

    Args:
        name: of a class, a function or a variable.
        cells: in the order in which they were run.

    Returns:
        The statements in that order; empty: nothing has the name.
    """
    statements: list[ast.stmt] = []
    binding: dict[str, ast.stmt] = {}
    for cell in cells:
        with contextlib.suppress(SyntaxError):
            for statement in ast.parse(cell).body:
                statements.append(statement)
                binding |= dict.fromkeys(_bound(statement), statement)
    if name not in binding:
        return ""
    kept: set[ast.stmt] = set()
    wanted = {name, "annotations"} & binding.keys()  # the latter of __future__
    while wanted:
        statement = binding[wanted.pop()]
        if statement not in kept:
            kept.add(statement)
            nodes = list(ast.walk(statement))
            local = {node.arg for node in nodes if isinstance(node, ast.arg)} | _names(nodes, ast.Store)
            wanted |= (_names(nodes, ast.Load) - local) & binding.keys()
    return "\n\n".join(ast.unparse(statement) for statement in statements if statement in kept) + "\n"


def _bound(statement: ast.stmt) -> set[str]:
    """Names that a statement of a module binds."""
    match statement:
        case ast.Import(names) | ast.ImportFrom(names=names):
            return {alias.asname or alias.name.partition(".")[0] for alias in names}
        case ast.ClassDef(name) | ast.FunctionDef(name):
            return {name}
        case ast.Assign() | ast.AnnAssign():
            return _names(ast.walk(statement), ast.Store)
    return set()


def _names(nodes: Iterable[ast.AST], context: type[ast.expr_context]) -> set[str]:
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, context)}
