"""How a file of facts is to be read, for which relation, and where its errors point."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

from derivable.core.diagnostics import DomainError, ParseError, Span
from derivable.datalog.facts.column_names import TAG_NAMES
from derivable.datalog.values.values import ValueType


@dataclass(frozen=True)
class FileForm:
    """How a file of facts is to be read.

    header           whether the first line has names; None if that is to be seen
    delimiter        one character; None for that of the file's ending
    has_probability  whether there is a column of probabilities; None if there is one column more
    is_named         with None, only a column whose name says so has probabilities
    keys             names of columns that say whose values the others are: each other column is then facts
                     (keys ..., name of the column, value), all texts in the last two
    fields           names of the columns to take, the others are left out
    quotes           whether fields may be in quotes; None if they may in a .csv and with a delimiter
    """

    header: bool | None = None
    delimiter: str | None = None
    has_probability: bool | None = None
    keys: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    is_named: bool = False
    quotes: bool | None = None


AS_IT_IS = FileForm()
# What stands for a fact of a relation without columns, and names their column, as in Soufflé.
NO_COLUMNS = "()"


@dataclass(frozen=True)
class FactFile(os.PathLike):
    """A file of facts with what its name does not say: `facts={"edge": FactFile("edges.csv", header=True)}`.

    path             of the file
    header           whether the first line has names of columns; None if that is to be seen: it has, if they are those
                     that the program declares
    delimiter        one character between the columns of a text; None for that of the file's ending
    has_probability  whether there is a column of probabilities; None if there is one column more than declared
    fields           the names of the columns to take, in the order of the relation's; the others are left out, but for
                     that of the probabilities if `has_probability` says that there is one. None takes all
    quotes           whether fields of a text may be in quotes; None if they may in a .csv and with a delimiter. Without
                     quotes `"a"` is a text of three characters

    Raises DomainError for a delimiter that is not one character, and for fields that are no names.
    """

    path: str | os.PathLike
    header: bool | None = None
    delimiter: str | None = None
    has_probability: bool | None = None
    fields: Sequence[str] | None = None
    quotes: bool | None = None

    def __post_init__(self) -> None:
        if self.fields is not None:
            names = (self.fields,) if isinstance(self.fields, str) else tuple(self.fields)
            if not names or not all(isinstance(name, str) for name in names):
                raise DomainError(
                    f"the fields {self.fields!r} are no names of columns", hint='such as fields=["name", "age"]'
                )
            if self.header is False:
                raise DomainError("fields are names in the first line", hint="leave out header=False")
            object.__setattr__(self, "fields", names)
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise DomainError(f"the delimiter {self.delimiter!r} is not one character", hint='such as ";"')

    def __fspath__(self) -> str:
        return os.fspath(self.path)

    @property
    def form(self) -> FileForm:
        fields = tuple(self.fields or ())
        return FileForm(self.header, self.delimiter, self.has_probability, fields=fields, quotes=self.quotes)


@dataclass(frozen=True)
class Target:
    """The relation that a file is for, and where messages point."""

    name: str
    types: Sequence[ValueType]
    column_names: Sequence[str | None]
    form: FileForm
    source: str

    def of_file(self, names: Sequence[str]) -> Target:
        """What is known where the first line, or the columns, have these names."""
        if self.form.has_probability is not None or not self.form.is_named:
            return self
        named = len(names) == len(self.types) + 1 and any(n.strip() in TAG_NAMES for n in names)
        return replace(self, form=replace(self.form, has_probability=named))

    def width_error(self, width: int) -> str:
        wanted = len(self.types)
        shown = f"{width} column{'s' if width != 1 else ''}"
        if self.form.has_probability is None:
            return f"{shown}; `{self.name}` has {wanted} (or {wanted + 1}, the first one the probability)"
        return f"{shown}; `{self.name}` needs {wanted + self.form.has_probability}"

    def column(self, index: int) -> str:
        """A column for messages, with its name if it has one."""
        name = self.column_names[index] if index < len(self.column_names) else None
        return f"column {index + 1} ({name})" if name else f"column {index + 1}"

    def has_width(self, width: int) -> bool:
        extra = (0, 1) if self.form.has_probability is None else (int(self.form.has_probability),)
        return width - len(self.types) in extra


def separation(ending: str, form: FileForm) -> tuple[str, bool]:
    """(what separates the fields of a file of text with this ending, whether they may be quoted)."""
    has_quotes = form.delimiter is not None or ending == ".csv"
    delimiter = form.delimiter or ("," if ending == ".csv" else "\t")
    return delimiter, has_quotes if form.quotes is None else form.quotes


def quoted(text: str) -> str:
    """A text as a program writes it, for messages."""
    return json.dumps(text)


def file_error(
    message: str, target: Target, text: str, line: int, value: str = "", hint: str | None = None
) -> ParseError:
    """The error of a line of a file, or of a value in it."""
    if not text:
        return ParseError(message, source=target.source, hint=hint)
    text = with_newlines(text)
    return ParseError(message, source=target.source, text=text, span=span_in(text, line, value), hint=hint)


def with_newlines(text: str) -> str:
    """A text for messages, whose lines are those that the csv module counts: a return ends one too."""
    return text.replace("\r\n", "\n").replace("\r", "\n")


def span_in(text: str, line: int, value: str = "") -> Span:
    """Where a value is in a line, or the line."""
    shown = text.split("\n")[line - 1]
    column = max(shown.find(value), 0) + 1 if value else 1
    return Span(line, column, max(1, len(value) or len(shown.rstrip())))
