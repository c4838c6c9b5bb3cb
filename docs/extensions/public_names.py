"""A hook of MkDocs: reference pages show names as users type them, `dv.nn.Logic`, wherever they are defined.

On a page of `reference/`

    ::: dv.nn.Logic                                   is where `Logic` is defined, under the heading `dv.nn.Logic`
    ::: derivable.circuit.queries.sample.sample as c.sample   is that function, under the heading `c.sample`

and the line `<!-- public names -->` is a table of all names of each public package, with the first sentence of what is
said about each.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import sys
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).parents[2] / "src"
sys.path.insert(0, str(SOURCE))
from docstrings import escaped  # noqa: E402

from derivable.core.lazy import ABOVE  # noqa: E402

DIRECTIVE = re.compile(r"^::: (?P<path>[\w.]+)(?: as (?P<name>[\w.]+))?$", re.MULTILINE)
MARK = "<!-- public names -->"
# The packages in the order of the pages, with what is in them.
PACKAGES = {
    "derivable": "Programs of rules, and the functions from which operators and semirings are written",
    "derivable.datalog": "Rules",
    "derivable.nn": "Modules and losses of PyTorch",
    "derivable.circuit": "Circuits and formulas",
    "derivable.algebra": "Semirings",
    "derivable.tensor": "Sparse tensors",
    "derivable.parallel": "Folds with operators",
    "derivable.vsa": "Vector-symbolic algebra",
    "derivable.accelerator": "Accelerators",
    "derivable.device": "Threads and memory",
}


def public_names() -> dict[str, list[str]]:
    """By package, its names; those of the top package without the packages themselves."""
    found = {}
    for package in PACKAGES:
        listed = importlib.import_module(package).__all__
        found[package] = [name for name in listed if f"{package}.{name}" not in PACKAGES and not name.startswith("_")]
    return found


def typed(package: str, name: str) -> str:
    """`dv.nn.Logic` for `Logic` of `derivable.nn`."""
    return f"dv{package.removeprefix('derivable')}.{name}"


def imported_names(package: str) -> dict[str, str]:
    """The module that each name of a package is defined in, by what it imports for type checkers."""
    file = SOURCE.joinpath(*package.split("."), "__init__.py")
    imports = [node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ImportFrom)]
    names = {alias.asname or alias.name: node.module or "" for node in imports for alias in node.names}
    return {**names, **ABOVE.get(package, {})}


def defined_at(name: str) -> str:
    """The path of the definition of a name as users type it."""
    package, _, last = name.replace("dv", "derivable", 1).rpartition(".")
    is_package = SOURCE.joinpath(*package.split("."), "__init__.py").exists()
    module = imported_names(package).get(last, package) if is_package else package
    return f"{module}.{last}"


def summary(package: str, name: str) -> str:
    """The first sentence of what is said about a public name; of a constant its value."""
    value = getattr(importlib.import_module(package), name)
    if not (callable(value) or isinstance(value, ModuleType)) or type(value).__name__ == "Type":
        return f"The {type(value).__name__.lower()} `{value}`."
    text = " ".join((inspect.getdoc(value) or "").split("\n\n")[0].split())
    first = re.split(r"(?<=[a-z`)\]0-9])\. (?=[A-Z`])", text)[0].rstrip(":")
    return first if first.endswith(".") else f"{first}."


def with_headings(markdown: str) -> str:
    """The page with a heading as users type it over each definition."""

    def directive(match: re.Match[str]) -> str:
        path, name = match["path"], match["name"]
        if path.startswith("dv."):
            path, name = defined_at(path), path
        if name is None:
            return match[0]
        level = 3 if re.search(r"^## ", markdown[: match.start()], re.MULTILINE) else 2
        label = name.rpartition(".")[2]
        return f'::: {path}\n    options: {{heading: "{name}", toc_label: "{label}", heading_level: {level}}}\n'

    return DIRECTIVE.sub(directive, markdown)


def tables(documented: set[str]) -> str:
    """For each package its names, linked to the descriptions among the documented paths."""
    written = []
    for package, names in public_names().items():
        written.append(f"## {PACKAGES[package]}\n\n| name | what it is |\n|---|---|")
        for name in sorted(names, key=str.lower):
            shown, path = f"`{typed(package, name)}`", defined_at(typed(package, name))
            if path in documented:
                shown = f"[{shown}][{path}]"
            pieces = re.split(r"(`[^`]*`)", escaped(summary(package, name)))
            pieces[::2] = [piece.replace("|", "&#124;") for piece in pieces[::2]]
            text = "".join(pieces)
            written[-1] += f"\n| {shown} | {text} |"
    return "\n\n".join(written)


def documented_paths(folder: Path) -> set[str]:
    """The definitions that the pages of a folder describe each under a heading of its own."""
    paths = [match["path"] for page in folder.glob("*.md") for match in DIRECTIVE.finditer(page.read_text())]
    return {defined_at(path) if path.startswith("dv.") else path for path in paths}


def on_page_markdown(markdown: str, page, config, files) -> str:
    if not page.file.src_uri.startswith("reference/"):
        return markdown
    if MARK in markdown:
        markdown = markdown.replace(MARK, tables(documented_paths(Path(config["docs_dir"]) / "reference")))
    return with_headings(markdown)
