"""Imports: the items of other files, each file once, whether many import it or files import each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from derivable.core.diagnostics import DerivableError, DomainError, ParseError
from derivable.core.files import checked_path, followed, is_file, utf8_text
from derivable.core.roots import Roots
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.parse import parse


def with_imports(syntax: s.Syntax, path: Path | None, roots: Roots) -> s.Syntax:
    """The syntax with every import replaced by the items of its file, whose spans name that file.

    path   the program's file, to which imports are relative; None takes the working directory
    roots  the folders of the files that may be read

    Raises ParseError for a file that is not there, may not or cannot be read, and for the errors in it.
    """
    if not any(isinstance(item, s.Import) for item in syntax.items):
        return _within(syntax, path, roots)
    seen = set() if path is None else {path.resolve()}
    directory = Path.cwd() if path is None else path.resolve().parent
    items = s.Syntax(tuple(_items(syntax, directory, seen, roots)), syntax.text, syntax.source)
    return _within(items, path, roots)


def _items(syntax: s.Syntax, directory: Path, seen: set[Path], roots: Roots) -> list[s.Item]:
    items: list[s.Item] = []
    for item in syntax.items:
        if not isinstance(item, s.Import):
            items.append(item)
            continue
        try:
            path = followed(directory / checked_path(item.path))
        except DomainError as error:
            syntax.error(ParseError, error.message, item.span, error.hint)
        if path in seen:
            continue
        seen.add(path)
        imported = parse(_read(path, item, syntax, roots), item.path, is_imported=True)
        items += [_located(item, path.parent) for item in _items(imported, path.parent, seen, roots)]
    return items


def _read(path: Path, item: s.Import, syntax: s.Syntax, roots: Roots) -> str:
    if not roots.holds(path):
        message, hint = roots.refusal(path, "read")
        syntax.error(ParseError, message, item.span, hint)
    if not is_file(path):
        syntax.error(ParseError, f"cannot find the imported file `{item.path}`", item.span, f"looked for {path}")
    try:
        return read(path)
    except DerivableError as failed:
        return syntax.error(ParseError, f"cannot read the imported file `{item.path}`", item.span, failed.message)


def read(path: Path) -> str:
    """The text of a program's file."""
    try:
        return utf8_text(path.read_bytes(), str(path)).replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise DerivableError(f"cannot read {path}: {error}") from None


def _located(item: s.Item, directory: Path) -> s.Item:
    """The item of an imported file; files of facts that it names are relative to that file."""
    if not isinstance(item, s.RelationType) or not item.attributes:
        return item

    return _with_files(item, lambda name, _: str(directory / name))


def _within(syntax: s.Syntax, path: Path | None, roots: Roots) -> s.Syntax:
    """The syntax whose files of facts are those in folders that may be read, under their whole paths.

    A file is looked for in the working directory, and then in that of the program's file.
    """
    if roots.folders is None:
        return syntax
    directories = (Path.cwd(), *(() if path is None else (path.resolve().parent,)))

    def allowed(name: str, attribute: s.Attribute) -> str:
        try:
            candidates = [followed(directory / checked_path(name)) for directory in directories]
        except DomainError as error:
            syntax.error(ParseError, error.message, attribute.span, error.hint)
        held = [file for file in candidates if roots.holds(file)]
        file = next((file for file in (*held, *candidates) if is_file(file)), (*held, *candidates)[0])
        if file not in held:
            message, hint = roots.refusal(file, "read")
            syntax.error(ParseError, message, attribute.span, hint)
        return str(file)

    items = (_with_files(item, allowed) if isinstance(item, s.RelationType) else item for item in syntax.items)
    return s.Syntax(tuple(items), syntax.text, syntax.source)


def _with_files(item: s.RelationType, renamed: Callable[[str, s.Attribute], str]) -> s.RelationType:
    """The declaration whose `@file` has other paths."""

    def with_path(attribute: s.Attribute) -> s.Attribute:
        paths = [i for i, (key, value) in enumerate(attribute.arguments) if key in (None, "path")][:1]
        if attribute.name != "file" or not paths or not isinstance(attribute.arguments[paths[0]][1], str):
            return attribute
        arguments = list(attribute.arguments)
        key, name = arguments[paths[0]]
        arguments[paths[0]] = key, renamed(name, attribute)
        return replace(attribute, arguments=tuple(arguments))

    return replace(item, attributes=tuple(map(with_path, item.attributes)))
