"""Reading and running the code blocks of a Markdown page.

The convention (also in CONTRIBUTING.md): a page runs top to bottom, in a process and a directory of its own.

```python      executed; all blocks of a page share one namespace. With a title it is written to that file, as below
```text        directly after a python block: what that block prints
```console     each `$ derivable ...` line is run; the lines under it are what it prints on stdout
title="NAME"   a block of any other language with this title is written to the file NAME

In expected output a `...` stands for any text within the place where it stands.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
import shlex
import subprocess
import sys
import textwrap
import warnings
from dataclasses import dataclass
from pathlib import Path

FENCE = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,}) *(?P<info>.*)$")
LINK = re.compile(r"!?\[[^\]]*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
# Pages of a newcomer's first hour print what they show and nothing else: a warning is a failure there.
WITHOUT_WARNINGS = {"README.md", "index.md", "getting-started.md", "tutorial.md", "cheat-sheet.md", "recipes.md"}
DISGUISED = {"py", "python3", "pycon", "py3", "ipython"}


@dataclass(frozen=True)
class Block:
    """A fenced block: `line` is the 1-based line of its first line of code."""

    language: str
    title: str | None
    code: str
    line: int
    follows: bool  # nothing but blank lines since the previous block


class OutputDiffers(AssertionError):
    """A block printed something else than the page says."""


def blocks_of(text: str) -> list[Block]:
    """All fenced blocks of a page, those inside lists and admonitions included."""
    lines = text.split("\n")
    found: list[Block] = []
    number, gap_is_blank = 0, False
    while number < len(lines):
        opening = FENCE.match(lines[number])
        if opening is None:
            gap_is_blank = gap_is_blank and not lines[number].strip()
            number += 1
            continue
        indent, fence, info = opening["indent"], opening["fence"], opening["info"].strip()
        body = []
        start = number + 1
        number = start
        while number < len(lines) and not re.fullmatch(rf" *{fence[0]}{{{len(fence)},}} *", lines[number]):
            body.append(lines[number].removeprefix(indent))
            number += 1
        assert number < len(lines), f"line {start}: the block is not closed"
        title = re.search(r'title="([^"]*)"', info)
        language = re.match(r"[\w+-]*", info)
        found.append(
            Block(
                language[0] if language else "",
                title[1] if title else None,
                textwrap.dedent("\n".join(body)) + "\n",
                start + 1,
                gap_is_blank,
            )
        )
        number += 1
        gap_is_blank = True
    return found


def output_matches(expected: str, printed: str) -> bool:
    """Equal up to space at line ends and blank lines at both ends; `...` in `expected` matches any text."""

    def tidy(text: str) -> str:
        return "\n".join(line.rstrip() for line in text.strip("\n").split("\n"))

    pattern = ".*?".join(re.escape(part) for part in tidy(expected).split("..."))
    return re.fullmatch(pattern, tidy(printed), flags=re.DOTALL) is not None


def compare(place: str, expected: str, printed: str) -> None:
    if not output_matches(expected, printed):
        raise OutputDiffers(f"{place}: the page says\n{expected}\nbut it prints\n{printed}")


def run_command(line: str) -> subprocess.CompletedProcess[str]:
    """Run `derivable ...` as installed scripts do, in this interpreter's environment and the current directory."""
    arguments = shlex.split(line)
    assert arguments[0] == "derivable", f"only `$ derivable ...` can be run in a console block, not {line!r}"
    code = "import sys; from derivable.cli.main import main; sys.argv[0] = 'derivable'; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "COLUMNS": "120"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments[1:]], capture_output=True, text=True, env=environment, check=False
    )


def run_page(text: str, name: str, directory: Path) -> int:
    """Execute a page; returns how many blocks were executed. Raises what a block raises, or OutputDiffers."""
    blocks = blocks_of(text)
    namespace: dict = {"__name__": "__page__"}
    executed = 0
    before = Path.cwd()
    if "@dv.rule" in text:
        # Rules are read from their source, as in a notebook.
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    os.chdir(directory)
    try:
        for position, block in enumerate(blocks):
            place = f"{name}:{block.line}"
            assert block.language not in DISGUISED, f"{place}: write ```python, so that the block is executed"
            if block.language == "python" and block.title is None:
                code = compile("\n" * (block.line - 1) + block.code, name, "exec")
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed), warnings.catch_warnings():
                    if name in WITHOUT_WARNINGS:
                        warnings.simplefilter("error", UserWarning)
                    exec(code, namespace)
                executed += 1
                follower = blocks[position + 1] if position + 1 < len(blocks) else None
                if follower is not None and follower.language == "text" and follower.follows and not follower.title:
                    compare(f"{name}:{follower.line}", follower.code, printed.getvalue())
            elif block.language == "console":
                for command, expected in commands_of(block.code):
                    done = run_command(command)
                    assert done.returncode == 0, f"{place}: `{command}` ends with {done.returncode}:\n{done.stderr}"
                    if expected.strip():
                        compare(f"{place}: `{command}`", expected, done.stdout)
                    executed += 1
            elif block.title is not None:
                target = Path(block.title)
                assert not target.is_absolute(), f"{place}: the title of a block is a file name"
                assert ".." not in target.parts, f"{place}: the title of a block is a file name"
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(block.code)
    finally:
        os.chdir(before)
    return executed


def commands_of(code: str) -> list[tuple[str, str]]:
    """(command, the output written under it) of a console block."""
    found: list[tuple[str, str]] = []
    for line in code.split("\n"):
        if line.startswith("$ "):
            found.append((line[2:], ""))
        elif found:
            found[-1] = (found[-1][0], found[-1][1] + line + "\n")
    return found


def links_of(text: str) -> list[str]:
    """The targets of all links and images outside code."""
    outside, fence = [], None
    for line in text.split("\n"):
        opening = FENCE.match(line)
        if fence is None and opening:
            fence = opening["fence"]
        elif fence is not None and line.strip().startswith(fence):
            fence = None
        elif fence is None:
            outside.append(re.sub(r"`[^`]*`", "", line))
    return LINK.findall("\n".join(outside))


def broken_links(page: Path) -> list[str]:
    """Relative links of a page whose file does not exist."""
    missing = []
    for target in links_of(page.read_text()):
        if re.match(r"[a-z][a-z0-9+.-]*:", target) or target.startswith("#"):
            continue
        if not (page.parent / target.split("#")[0]).exists():
            missing.append(target)
    return missing


def main() -> None:
    """`python documentation.py PAGE DIRECTORY`: run one page in this process."""
    page, directory = Path(sys.argv[1]).resolve(), Path(sys.argv[2])
    executed = run_page(page.read_text(), page.name, directory)
    print(f"{executed} blocks executed")


if __name__ == "__main__":
    main()
