"""Follow a page as its reader would: each command and each block of Python in turn, in one folder; compare what comes.

Blocks of `console` have commands after a `$`, each with its output; a block of `python` may be followed by one of
`text` with its output. What differs from run to run (seconds, processes, folders) is not compared. After a change of
what commands print, `python tests/followed_page.py docs/tutorial.md 2 3 4` writes what comes now into these sections.
"""

import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from typer.testing import CliRunner

from geoswarm.service.cli import app

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.MULTILINE | re.DOTALL)
COMMAND_S_MAX = 240.0
NOISE = re.compile(r"WARNING: |\S+ \S+ WARN |batch \d+: [\d,]+ events/s|compiling |\d+ jar\(s\) could not be fetched")
"""Lines that a slow or a fresh machine prints besides."""


class Step(NamedTuple):
    kind: str
    """console or python."""
    code: str
    shown: str
    """What the page says that it gives."""


def sections(page: Path) -> dict[str, str]:
    """The text below each heading of the second level, by the heading."""
    parts = re.split(r"^## (.*)\n", page.read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def steps(text: str) -> Iterator[Step]:
    found = list(BLOCK.finditer(text))
    for number, block in enumerate(found):
        kind, code = block.groups()
        if kind == "console":
            for part in re.split(r"^\$ ", code, flags=re.MULTILINE)[1:]:
                command, _, shown = part.partition("\n")
                yield Step("console", command, shown)
        elif kind == "python":
            after = found[number + 1] if number + 1 < len(found) else None
            is_next = after is not None and after[1] == "text" and not text[block.end() : after.start()].strip()
            yield Step("python", code, after[2] if is_next and after is not None else "")


class Reader:
    """Does what a page says in the current folder. `replaced` stands for texts of the page, such as an address."""

    def __init__(self, replaced: dict[str, str] | None = None) -> None:
        self._replaced, self._names = replaced or {}, dict[str, Any]()

    def follow(self, text: str, *, apart: bool = False) -> list[tuple[Step, str]]:
        """Each step with what it gave. `apart` starts each command as a process of its own."""
        return [(step, self._do(step, apart)) for step in steps(text)]

    def _do(self, step: Step, apart: bool) -> str:
        code = step.code
        for shown, real in self._replaced.items():
            code = code.replace(shown, real)
        if step.kind == "python":
            with redirect_stdout(io.StringIO()) as said:
                exec(code, self._names)
            return said.getvalue()
        if code.startswith("geoswarm ") and not apart:
            done = CliRunner().invoke(app, shlex.split(code)[1:])
            assert done.exit_code == 0, f"{code}: {done.output}"
            return done.output
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        ran = subprocess.run(
            code, shell=True, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=COMMAND_S_MAX
        )
        assert ran.returncode == 0, f"{code}: {ran.stderr}"
        return ran.stderr + ran.stdout


def comparable(output: str) -> list[str]:
    """The lines of an output without what is another in each run."""
    text = re.sub(r"[─━┓┏┳┗┛┃│┌┐└┘├┤┡╇┩]+", "|", output)
    text = re.sub(r"\d+\.\d+ s\b", "N s", text)
    text = re.sub(r"process \d+", "process N", text)
    text = re.sub(r"checkpoint\s[^|]*", "checkpoint F\n", text)
    lines = [re.sub(r"\s+", " ", line).strip() for line in text.splitlines()]
    return [line for line in lines if line and not NOISE.match(line)]


def with_what_came(text: str, done: list[tuple[Step, str]]) -> str:
    """The page with the outputs of these steps."""
    for step, came in done:
        lines = [line.rstrip() for line in came.splitlines() if not NOISE.match(line)]
        output = "".join(f"{line}\n" for line in lines)
        if step.kind == "console":
            text = text.replace(f"$ {step.code}\n{step.shown}", f"$ {step.code}\n{output}")
        elif step.shown:
            between = "```\n\n```text\n"
            text = text.replace(f"{step.code}{between}{step.shown}", f"{step.code}{between}{output}")
    return text


def main(page: Path, numbers: list[str]) -> None:
    reader, chosen = Reader(), [text for title, text in sections(page).items() if title.split(".")[0] in numbers]
    page = page.absolute()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        for text in chosen:
            page.write_text(with_what_came(page.read_text(), reader.follow(text)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
