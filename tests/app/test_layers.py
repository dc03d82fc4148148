"""The app without its edge knows nothing of HTTP."""

import ast
from pathlib import Path

import pytest

import p3dc.app

APP = Path(p3dc.app.__file__).parent
DOMAIN = sorted(path for path in APP.rglob("*.py") if APP / "http" not in path.parents)


@pytest.mark.parametrize("path", DOMAIN, ids=lambda path: str(path.relative_to(APP)))
def test_the_domain_imports_nothing_of_http(path):
    nodes = list(ast.walk(ast.parse(path.read_text())))
    imported = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    assert len(DOMAIN) > 8
    assert not {name for name in imported if name.startswith(("fastapi", "starlette", "uvicorn", "p3dc.app.http"))}
