"""Reads an adapter's `SIZES` without importing the adapter, where it is written out as it usually is.

Planning then costs nothing, and no model's imports run in a process that measures another.
"""

from __future__ import annotations

import ast
from pathlib import Path

from harness.adapter import Size

_PLAIN = (ast.Expression, ast.Dict, ast.Tuple, ast.Constant, ast.keyword, ast.Load)


def written_sizes(path: Path) -> dict[str, Size] | None:
    """Sizes of the adapter at `path` if it says just once `SIZES = {"name": Size(...literals...)}`, else None."""
    try:
        body = ast.parse(path.read_text(encoding="utf-8")).body
    except (OSError, SyntaxError, ValueError):
        return None
    found = [node for node in body if "SIZES" in _assigned(node)]
    if len(found) != 1 or not isinstance(found[0], ast.Assign | ast.AnnAssign) or found[0].value is None:
        return None
    if not any(_imports_size(node) for node in body) or not all(map(_is_plain, ast.walk(found[0].value))):
        return None
    try:
        sizes = eval(compile(ast.Expression(found[0].value), str(path), "eval"), {"__builtins__": {}, "Size": Size})
    except (TypeError, ValueError):
        return None
    return sizes if isinstance(sizes, dict) else None


def _assigned(node: ast.stmt) -> set[str]:
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and not isinstance(name.ctx, ast.Load)}


def _imports_size(node: ast.stmt) -> bool:
    names = [(alias.name, alias.asname) for alias in node.names] if isinstance(node, ast.ImportFrom) else []
    return isinstance(node, ast.ImportFrom) and node.module == "harness.adapter" and ("Size", None) in names


def _is_plain(node: ast.AST) -> bool:
    """Whether a node is a literal, or a call of `Size`."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Name)
    if isinstance(node, ast.Name):
        return node.id == "Size"
    return isinstance(node, _PLAIN)
