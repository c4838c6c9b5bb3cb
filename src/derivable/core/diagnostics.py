"""The exceptions a user of derivable sees.

Every one says what was wrong, where (file, line, column and a caret under the text), the sizes
involved, and the likely fix. Anything else that escapes the library is a bug in the library.

Printed form:

    demo.scl:3:15: error: variable `c` in the head is not bound by the body
      3 | rel path(a, c) = edge(a, b)
        |             ^
    help: use `c` in a positive atom of the body, or replace it by a constant
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NoReturn

from derivable.core.terminal import visible


@dataclass(frozen=True)
class Origin:
    """A text that a program took in: its name and the text itself."""

    source: str
    text: str = field(repr=False)


@dataclass(frozen=True)
class Span:
    """A place in a text: 1-based `line` and `column`, `length` characters (at least 1).

    origin  the text, where it is not the one that is at hand, as for the items of an imported file
    """

    line: int
    column: int
    length: int = 1
    origin: Origin | None = field(default=None, compare=False, repr=False)

    @property
    def location(self) -> str:
        """`line 3`, or `line 3 of lib.scl`."""
        return f"line {self.line}" if self.origin is None else f"line {self.line} of {self.origin.source}"


class DerivableError(Exception):
    """Base of all errors that bad input causes. Its text is the full report.

    message  what was wrong, with the sizes involved, without a final full stop
    hint     the likely fix
    source   name of the file or `<program>`
    text     the text that `span` points into; only the line that is shown is kept
    others   further errors that were found, independent of this one; see `together`
    """

    severity: ClassVar[str] = "error"

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        source: str | None = None,
        text: str | None = None,
        span: Span | None = None,
    ):
        if span is not None and span.origin is not None:
            source, text, span = span.origin.source, span.origin.text, replace(span, origin=None)
        self.message = message
        self.hint = hint
        self.source = source
        self.span = span
        self.others: tuple[DerivableError, ...] = ()
        self.line_text: str | None = None
        if text is not None and span is not None:
            lines = text.split("\n")
            if 1 <= span.line <= len(lines):
                self.line_text = lines[span.line - 1].rstrip("\r")
        super().__init__(self.report())

    def __reduce__(self):
        return _rebuild, (type(self), self.__dict__.copy())

    def report(self) -> str:
        """The text shown to a person, several lines, no trailing newline."""
        place = self.source or ("<input>" if self.span is not None else "")
        if self.span is not None:
            place += f":{self.span.line}:{self.span.column}"
        rows = [f"{place}: {self.severity}: {self.message}" if place else self.message]
        if self.span is not None and self.line_text is not None:
            number = str(self.span.line)
            shown = self.line_text.replace("\t", " ")
            start = self.span.column - 1
            width = max(1, min(self.span.length, len(shown) - start))
            if len(shown) > 120:
                cut = max(0, start - 60)
                shown, start = shown[cut : cut + 120], start - cut
                width = max(1, min(width, len(shown) - start))
            rows.append(f"  {number} | {shown}")
            rows.append(f"  {' ' * len(number)} | {' ' * start}{'^' * width}")
        if self.hint:
            rows.append(f"help: {self.hint}")
        for other in self.others:
            rows += ["", other.report()]
        # Texts of others, which a message quotes, are no commands to the terminal that shows it.
        return visible("\n".join(rows))


class Errors:
    """Collects independent errors: `with errors:` keeps the one that is raised inside, `report` raises them together.
    One at a place is enough."""

    def __init__(self) -> None:
        self.found: list[DerivableError] = []

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: object, trace: object) -> bool:
        if not isinstance(error, DerivableError):
            return False
        if all((error.source, error.span) != (other.source, other.span) for other in self.found):
            self.found.append(error)
        return True

    def report(self) -> None:
        if self.found:
            places = [error.span or Span(0, 0) for error in self.found]
            order = sorted(range(len(places)), key=lambda i: (places[i].line, places[i].column))
            raise together([self.found[i] for i in order])


def together(errors: Sequence[DerivableError], most: int = 10) -> DerivableError:
    """The first of several errors, whose report has those of the others too, at most `most` in all."""
    first = errors[0]
    if len(errors) > 1:
        first.others = tuple(errors[1:most])
        text = first.report()
        if len(errors) > most:
            text += f"\n\nand {len(errors) - most} more errors"
        first.args = (text,)
    return first


def _rebuild(kind: type[DerivableError], state: dict) -> DerivableError:
    error = kind.__new__(kind)
    Exception.__init__(error)
    error.__dict__.update(state)
    error.args = (error.report(),)
    return error


class DerivableWarning(UserWarning):
    """Something in the input is legal, and probably not what was meant. Its text has the form of an error's."""


class _Notice(DerivableError):
    """What a warning says."""

    severity = "warning"


def outside(number: float, low: float = 0.0, high: float = 1.0) -> str:
    """A number that is not in [low, high], for people: six digits, or all of them where six would be inside."""
    text = f"{number:.6g}"
    return repr(float(number)) if low <= float(text) <= high else text


def warn(
    message: str,
    *,
    hint: str | None = None,
    source: str | None = None,
    text: str | None = None,
    span: Span | None = None,
) -> None:
    """Give a DerivableWarning with the text of an error, at the caller's line that is outside the library.

    `warnings.filterwarnings("error", category=DerivableWarning)` makes errors of them.
    """
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "derivable":
        level, frame = level + 1, frame.f_back
    report = _Notice(message, hint=hint, source=source, text=text, span=span).report()
    warnings.warn(report, DerivableWarning, stacklevel=level)


class Written:
    """What was written as a text, into which the spans of its errors point."""

    text: str
    source: str

    def error(self, kind: type[DerivableError], message: str, span: Span, hint: str | None = None) -> NoReturn:
        raise kind(message, hint=hint, source=self.source, text=self.text, span=span) from None


class ParseError(DerivableError):
    """A text or file does not follow its grammar or format."""


class TypeMismatchError(DerivableError):
    """An arity or a type of a program does not fit its declaration or use."""


class BindingError(DerivableError):
    """A variable is not bound (an ungrounded head variable, a variable under negation only)."""


class StratificationError(DerivableError):
    """A relation depends on itself through negation or aggregation."""


class LayoutError(DerivableError):
    """Offsets, indices or node order of a flat structure are inconsistent."""


class ShapeError(DerivableError):
    """An array has the wrong shape or dtype; the message gives both sizes."""


class DomainError(DerivableError):
    """A value is outside what an operation accepts (NaN weights, a negative probability)."""


class OperatorError(DerivableError):
    """An operator breaks a law that folds rely on; the message has a counterexample."""


class UnsupportedError(DerivableError):
    """A declared refusal: the request is understood and not supported, with the reason."""


class AbsentTupleError(DerivableError, KeyError):
    """A tuple is asked for that a relation does not have."""

    __str__ = Exception.__str__


class LimitError(DerivableError):
    """A run passed a limit on its rounds, its tuples, its seconds or its memory."""


class CompileTimeout(LimitError):
    """A run, or knowledge compilation, passed its time limit."""


class OutOfMemory(LimitError, MemoryError):
    """There is less memory than a run needs, or than it was allowed."""


class MissingDependencyError(DerivableError):
    """An optional package is needed; the hint names the extra to install."""
