"""The sentences that the page on troubleshooting explains are those that the package prints."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "troubleshooting.md"


def sentences(source):
    """List the texts of a module, with … for what is filled in."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.JoinedStr):
            yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def test_every_sentence_is_one_that_the_package_prints():
    printed = {
        one
        for path in (ROOT / "src").rglob("*.py")
        for text in sentences(path.read_text())
        for one in [text, text.split("\n")[0]]
    }
    explained = re.findall(r"^> (.*)", PAGE.read_text(), flags=re.M)
    assert len(explained) > 25
    assert not [sentence for sentence in explained if sentence not in printed]
