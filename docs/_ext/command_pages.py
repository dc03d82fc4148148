"""The directive ``commands``: the reference of ``p3dc``, made from the commands themselves."""

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import typer
from docutils.nodes import Node
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from p3dc.cli import COMMANDS
from p3dc.cli.shared import app as program

PANELS = {"argument": "Arguments", "option": "Options"}


class Commands(SphinxDirective):
    """List every command with its help, its arguments and its options."""

    def run(self) -> list[Node]:
        """Write Markdown and parse it, whenever the site is built."""
        self.env.note_reread()
        for module in COMMANDS:
            import_module(f"p3dc.cli.{module}")
        text = "\n".join(line for name, command in commands() for line in describe(name, command))
        return self.parse_text_to_nodes(text, allow_section_headings=True)


def commands() -> Iterator[tuple[str, Any]]:
    """Yield the full name of every command, and the command."""
    todo = [("p3dc", typer.main.get_command(program))]
    while todo:
        name, command = todo.pop(0)
        below = getattr(command, "commands", None)
        if below is None:
            yield name, command
        else:
            todo = [(f"{name} {word}", one) for word, one in below.items()] + todo


def describe(name: str, command: Any) -> Iterator[str]:
    """Write one command as Markdown: heading, usage, help, and a table for each group of options."""
    context = typer.Context(command, info_name=name)
    yield f"({name.replace(' ', '-')})=\n\n## {name}\n"
    yield f"```text\n{command.get_usage(context).removeprefix('Usage: ')}\n```\n"
    yield _paragraphs(command.help or "")
    groups: dict[str, list[tuple[str, str]]] = {}
    for one in command.params:
        record = one.get_help_record(context)
        if record is not None:
            panel = getattr(one, "rich_help_panel", None) or PANELS[one.param_type_name]
            groups.setdefault(panel, []).append(record)
    for title, records in groups.items():
        yield f"\n:::{{list-table}} {title}\n:widths: 34 66\n:class: parameters\n"
        for spelling, meaning in records:
            yield f"* - `{spelling}`\n  - {_escape(' '.join(meaning.split()))}"
        yield ":::\n"
    if command.epilog:
        yield _paragraphs(command.epilog)


def _paragraphs(text: str) -> str:
    """Help as Markdown: an example stays as it is, since it is a command to copy."""
    text = inspect.cleandoc(text.replace("\b", "").replace("\f", ""))
    blocks = re.split(r"\n\s*\n", text)
    return "\n\n".join(_block(block) for block in blocks)


def _block(block: str) -> str:
    lines = block.strip("\n").splitlines()
    head, rest = lines[0], lines[1:]
    shell = [line for line in lines if line.startswith(" ") or line.lstrip().startswith(("p3dc ", "$ "))]
    if shell and len(shell) == len(lines):
        return "```sh\n" + "\n".join(line.strip().removeprefix("$ ") for line in lines) + "\n```"
    if rest and all(line.startswith(" ") for line in rest) and head.rstrip().endswith(":"):
        return _escape(head) + "\n\n```sh\n" + "\n".join(line.strip() for line in rest) + "\n```"
    return _escape(" ".join(line.strip() for line in lines))


def _escape(text: str) -> str:
    """Keep option names and angle brackets from being read as markup."""
    text = re.sub(r"(?<![\w`-])(--[a-z][\w-]*)", r"`\1`", text)
    return re.sub(r"([<>*|])", r"\\\1", text)


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
