"""Code blocks of Markdown pages, and how they are run: in order, in one folder, with one set of Python names a page.

A block that cannot run says why in the line above it: ``<!-- not run: a network -->``. Its names and options are still
checked. ``<!-- prints -->`` above a block of text compares it with what the block before printed; … is anything. A
server that a block starts runs until the end of the page, on a free port, with the example set loaded.
"""

import ast
import doctest
import os
import re
import shlex
import subprocess
import sys
import tempfile
import tomllib
import warnings
from contextlib import ExitStack, redirect_stdout
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from io import StringIO
from pathlib import Path

import httpx
import typer

from p3dc.cli import COMMANDS, main
from p3dc.cli.shared import app

ROOT = Path(__file__).parents[2]
REASONS = {
    "a cluster",
    "a GPU",
    "a network",
    "features of a data set",
    "minutes",
    "the ray extra",
    "the test suite",
    "torch",
}
SERVED = r"https?://(?:localhost:8765|photos\.example\.org)"
LANGUAGES = {"python", "sh"}
DATA = {"bibtex", "ini", "json", "nginx", "text", "toml", "yaml"}
BLOCK = re.compile(
    r"^(?P<above>[^\n]*\n)?(?P<indent> *)(?P<fence>```+|:::+)(?P<language>[^\n`]*)\n"
    r"(?P<code>.*?)^(?P=indent)(?P=fence) *$",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """One fenced block: where it is, what it holds, and why it is not run, if it is not."""

    page: Path
    line: int
    language: str
    code: str
    not_run: str | None
    prints: bool

    @property
    def where(self):
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(page):
    """List the fenced blocks of a page; directives are none, but blocks inside them are."""
    text = page.read_text()
    return list(_blocks(page, text, 0))


def _blocks(page, text, before):
    for found in BLOCK.finditer(text):
        language = found["language"].strip()
        line = before + text.count("\n", 0, found.start("fence")) + 1
        code = "".join(one.removeprefix(found["indent"]) for one in found["code"].splitlines(keepends=True))
        if language.startswith("{"):
            yield from _blocks(page, code, line)
            continue
        above = (found["above"] or "").strip()
        reason = re.fullmatch(r"<!-- not run: (.*?) -->", above)
        yield Block(page, line, language, code, reason and reason[1], above == "<!-- prints -->")


def run_page(page, folder):
    """Run all blocks of a page in a folder; an error names its place."""
    names, printed = {"__name__": "__main__"}, ""
    before = Path.cwd()
    os.chdir(folder)
    with ExitStack() as servers:
        shell = Shell(servers)
        servers.callback(os.chdir, before)
        for block in blocks(page):
            if block.prints:
                assert matches(block.code, printed), f"{block.where} prints\n{printed}"
            elif block.language in LANGUAGES and not block.not_run:
                try:
                    printed = run_python(block, names) if block.language == "python" else shell.run(block)
                except Exception as error:
                    raise AssertionError(f"{block.where}: {type(error).__name__}: {error}\n\n{block.code}") from error


def matches(expected, printed):
    """Whether a text is what was printed, where … stands for anything and ends of lines do not count."""
    pattern = ".*".join(re.escape(part) for part in " ".join(expected.split()).split("…"))
    return re.fullmatch(pattern, " ".join(printed.split())) is not None


def run_python(block, names):
    """Run Python, as a doctest if it has prompts, and return what it printed."""
    output = StringIO()
    if block.code.startswith(">>>"):
        test = doctest.DocTestParser().get_doctest(block.code, names, block.where, str(block.page), block.line)
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        runner.run(test, out=output.write, clear_globs=False)
        names.update(test.globs)
        assert not runner.failures, output.getvalue()
        return ""
    with redirect_stdout(output):
        exec(compile(block.code, block.where, "exec"), names)
    return output.getvalue()


class Shell:
    """Runs commands: ``p3dc`` in this process, which is faster, a server beside it, and anything else in a shell."""

    def __init__(self, servers):
        self.servers, self.environment, self.address = servers, dict(os.environ), None

    def run(self, block):
        """Run a block and return what it printed; variables that it exports are there in the next one."""
        lines = [line for line in map(without_installation, command_lines(block.code)) if line]
        if all(re.fullmatch(r"p3dc (?!serve)[^|&;<>$`*]+", line) for line in lines):
            return "".join(run_command(shlex.split(line, comments=True)[1:]) for line in lines)
        served = [line for line in lines if line.startswith("p3dc serve")]
        printed = self._run_script([re.sub(SERVED, self.address or "", line) for line in lines if line not in served])
        for line in served:
            self._serve(shlex.split(line)[1:])
        return printed

    def _run_script(self, lines):
        tools = {"p3dc": f'exec "{sys.executable}" -m p3dc "$@"', "python": f'exec "{sys.executable}" "$@"'}
        functions = [f"{name}() ( {body} )" for name, body in tools.items()]
        with tempfile.TemporaryDirectory() as folder:
            kept = Path(folder) / "environment"
            script = "\n".join([*functions, *lines, f"env -0 > {kept}"])
            command = ["bash", "-euo", "pipefail", "-c", script]
            done = subprocess.run(
                command, env=self.environment, capture_output=True, text=True, check=False, timeout=120
            )
            assert done.returncode == 0, done.stdout + done.stderr
            self.environment = dict(one.partition("=")[::2] for one in kept.read_text().split("\0") if one)
        return done.stdout

    def _serve(self, arguments):
        command = [sys.executable, "-m", "p3dc", *arguments, "--port", "0"]
        server = subprocess.Popen(command, env=self.environment, stdout=subprocess.PIPE, text=True)
        self.servers.enter_context(server)
        self.servers.callback(server.kill)
        self.address = re.search(r"http://\S+(?=/ )", server.stdout.readline())[0]
        token = self.environment.get("P3DC_TOKEN", "")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        httpx.post(f"{self.address}/v1/drawings", headers=headers, timeout=60).raise_for_status()


def run_command(arguments):
    """Run one command of p3dc in this process and return what it printed."""
    output, argv, show = StringIO(), sys.argv, warnings.showwarning
    sys.argv = ["p3dc", *arguments]
    try:
        with warnings.catch_warnings(), redirect_stdout(output):
            warnings.simplefilter("default")
            main()
    except SystemExit as stop:
        status = stop.code
    finally:
        sys.argv, warnings.showwarning = argv, show
    assert status == 0, f"status {status} of p3dc {shlex.join(arguments)}"
    return output.getvalue()


def command_lines(code):
    """List the lines of a block of shell code; one that goes on in the next is one."""
    joined = code.replace("\\\n", " ")
    return [line.strip() for line in joined.splitlines() if line.strip() and not line.strip().startswith("#")]


INSTALLATION = re.compile(r"""pip install (?:-e )?["']?(?:\.|p3dc-shot)(?:\[([\w,]+)\])?["']?(?: *&& *| *#.*|$)""")


def without_installation(line):
    """Leave out the installation of the package, which has been done; its extras must exist."""
    found = INSTALLATION.match(line)
    if found is None:
        return line
    assert set((found[1] or "dev").split(",")) <= set(extras()), line
    return line[found.end() :]


@cache
def extras():
    """Return the optional dependencies of the package by their names."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def check_block(block):
    """Check what can be without running a block: its syntax, what it imports, commands and their options."""
    if block.language == "python":
        code = block.code
        if code.startswith(">>>"):
            code = "\n".join(one.source for one in doctest.DocTestParser().get_examples(code))
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("p3dc"):
                missing = {alias.name for alias in node.names} - set(dir(import_module(node.module)))
                assert not missing, f"{block.where}: {ast.unparse(node)}"
    elif block.language == "sh":
        subprocess.run(["bash", "-n", "-c", block.code], check=True, capture_output=True)
        for line in command_lines(block.code):
            for command in re.findall(r"(?:^|[\s;&|(])p3dc ([a-z][^|&;#)]*)", line):
                check_options(command.split(), line)
    elif block.language == "toml":
        tomllib.loads(block.code)


def check_options(words, line):
    """Check that a command of p3dc is there and has the options of a line."""
    for module in COMMANDS:
        import_module(f"p3dc.cli.{module}")
    command = typer.main.get_command(app)
    while words and hasattr(command, "commands"):
        assert words[0] in command.commands, line
        command = command.commands[words.pop(0)]
    known = {option for one in command.params for option in (*one.opts, *one.secondary_opts)} | {"--help", "-h"}
    assert {word.partition("=")[0] for word in words if word.startswith("--")} <= known, line
