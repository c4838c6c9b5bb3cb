"""Imports: the items of other files, each file once, whether many import it or files import each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from derivable.core.diagnostics import DerivableError, ParseError
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.parse import parse


def with_imports(syntax: s.Syntax, path: Path | None) -> s.Syntax:
    """The syntax with every import replaced by the items of its file, whose spans name that file.

    path  the program's own file, to which imports are relative; None takes the working directory

    Raises ParseError for a file that is not there or cannot be read, and for the errors in it.
    """
    if not any(isinstance(item, s.Import) for item in syntax.items):
        return syntax
    seen = set() if path is None else {path.resolve()}
    directory = Path.cwd() if path is None else path.resolve().parent
    return s.Syntax(tuple(_items(syntax, directory, seen)), syntax.text, syntax.source)


def _items(syntax: s.Syntax, directory: Path, seen: set[Path]) -> list[s.Item]:
    found: list[s.Item] = []
    for item in syntax.items:
        if not isinstance(item, s.Import):
            found.append(item)
            continue
        path = (directory / item.path).resolve()
        if path in seen:
            continue
        seen.add(path)
        imported = parse(_read(path, item, syntax), item.path, is_imported=True)
        found += [_located(item, path.parent) for item in _items(imported, path.parent, seen)]
    return found


def _read(path: Path, item: s.Import, syntax: s.Syntax) -> str:
    if not path.is_file():
        syntax.error(ParseError, f"cannot find the imported file `{item.path}`", item.span, f"looked for {path}")
    try:
        return read(path)
    except DerivableError as failed:
        return syntax.error(ParseError, f"cannot read the imported file `{item.path}`", item.span, failed.message)


def read(path: Path) -> str:
    """The text of a program's file."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DerivableError(f"cannot read {path}: {error}") from None


def _located(item: s.Item, directory: Path) -> s.Item:
    """The item of an imported file; files that it names are relative to that file."""
    if not isinstance(item, (s.RelationType, s.Query)) or not item.attributes:
        return item

    def located(attribute: s.Attribute) -> s.Attribute:
        first, *rest = attribute.arguments or ((None, None),)
        if attribute.name != "file" or not isinstance(first[1], str):
            return attribute
        return replace(attribute, arguments=((first[0], str(directory / first[1])), *rest))

    return replace(item, attributes=tuple(map(located, item.attributes)))
