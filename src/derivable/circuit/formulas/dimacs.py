"""DIMACS CNF: read and write, with the weights and the dialects of the model counting competitions.

Printed form:

    c t wmc
    p cnf 3 2
    c p weight 1 0.4 0
    c p weight -1 0.6 0
    1 -2 0
    2 3 0
"""

from __future__ import annotations

import itertools
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from derivable.circuit.formulas.cnf import Cnf, checked_weights, cnf_from_clauses, largest_variable
from derivable.core.diagnostics import (
    DerivableError,
    DomainError,
    ParseError,
    Span,
    UnsupportedError,
    warn,
)
from derivable.core.files import atomic_write, read_bytes
from derivable.core.numbers import number_of, vanishes
from derivable.core.other_files import other_language
from derivable.core.registry import nearest

TASKS = ("mc", "wmc", "pmc", "pwmc")
_PARAMETERS = ("weight", "show")  # behind `c p`
_MEANT = ("c p weight", "c p show", "c ind ")  # how comments begin that are none
_COUNT = re.compile(r"[0-9]{1,18}")
_LITERAL = re.compile(r"-?[0-9]{1,18}")


def read_dimacs(
    path: str | os.PathLike, look: Callable[[], Any] | None = None, *, strict: bool = True, projected: bool = False
) -> Cnf:
    """Read a DIMACS CNF file, gzipped or not. See `parse_dimacs`; `look` as in `core.files.read_bytes`."""
    return parse_dimacs_bytes(read_bytes(path, look), os.fspath(path), strict, projected)


def parse_dimacs_bytes(data: bytes, source: str, strict: bool = True, projected: bool = False) -> Cnf:
    """Parse the bytes of a file. See `parse_dimacs`; raises ParseError for what is no text."""
    wrong = data.find(b"\0")
    try:
        if wrong < 0:
            return parse_dimacs(data.decode("utf-8"), source, strict, projected)
    except UnicodeDecodeError as error:
        if error.start > 0:
            # An old comment in some other encoding.
            return parse_dimacs(data.decode("latin-1"), source, strict, projected)
        wrong = error.start
    raise ParseError(
        f"this is not a text file: byte {wrong} is 0x{data[wrong]:02x}",
        source=source,
        hint="a DIMACS file is plain text, possibly compressed with gzip",
    )


def parse_dimacs(text: str, source: str = "<dimacs>", strict: bool = True, projected: bool = False) -> Cnf:
    """Parse DIMACS CNF.

    Understood: comments anywhere; clauses over several lines, several to a line; `c t TASK`;
    `c p weight LITERAL WEIGHT 0` (a decimal number or a fraction such as 1/3); `w LITERAL WEIGHT [0]`,
    where `w VARIABLE -1` gives both literals weight one; `%` as the end (SATLIB).
    A literal without a weight has weight one; if only the other literal of its variable has one, w,
    it has 1 - w. Weights are any numbers. Variables that no clause mentions are free.

    strict  whether the header must be right; else the clauses that there are count, and the variables are those up to
            the greatest that occurs, if that is more
    projected  whether `c p show` and `c ind` lines may show some variables only: then `shown` has these

    Raises ParseError with line, column and caret; UnsupportedError for `c p show` and `c ind` lines
    (projection) unless they show every variable, or `projected` says that they may.
    Source: the data format of the Model Counting Competitions 2020-2024.
    """
    return _Reader(text, source, strict, projected).read()


# A line that is read after all others: its number and its text.
_Line = tuple[int, str]


def _words(lines: Iterable[_Line], skip: int = 0) -> Iterator[tuple[Span, str]]:
    """The words of all lines, but for the first `skip` of each, with their spans.

    Words as ASCII has them: other spaces are no separators, and so garbage.
    """
    for number, line in lines:
        for match in itertools.islice(re.finditer(r"\S+", line, re.ASCII), skip, None):
            yield Span(number, match.start() + 1, len(match.group())), match.group()


def _whole(number: int, line: str) -> Span:
    return Span(number, 1, len(line.rstrip()))


def _behind(number: int, line: str) -> Span:
    return Span(number, len(line.rstrip()) + 1)


class _Reader:
    def __init__(self, text: str, source: str, strict: bool, projected: bool = False):
        self.strict, self.projected = strict, projected
        self.text = text
        self.source = source
        self.num_variables = -1
        self.num_clauses = -1
        self.header_line: _Line = (0, "")
        self.task: str | None = None
        self.weight_lines: list[tuple[_Line, int]] = []  # (line, number of words before the literal)
        self.show_lines: list[tuple[_Line, int]] = []

    def error(
        self, message: str, span: Span, hint: str | None = None, kind: type[DerivableError] = ParseError
    ) -> DerivableError:
        return kind(message, source=self.source, text=self.text, span=span, hint=hint)

    def read(self) -> Cnf:
        clause_lines: list[_Line] = []
        for number, line in enumerate(self.text.split("\n"), start=1):
            first = line[:1]
            if first in "-123456789" and first:
                clause_lines.append((number, line))
                continue
            words = line.split(None, 3)
            if not words:
                continue
            head = words[0]
            if head == "c":
                self.comment((number, line), words)
            elif head == "p":
                self.header(number, line)
            elif head == "w":
                self.weight_lines.append(((number, line), 1))
            elif head == "%":
                break
            elif head[0] == "c" and not head[1:].isdigit():
                continue  # a comment without the blank
            else:
                clause_lines.append((number, line))
        self.check_last_line()
        first_clause = clause_lines[0][0] if clause_lines else 1
        if self.num_variables < 0:
            language = other_language(self.source, self.text)
            if language is not None:
                raise ParseError(f"this is {language.title}, and no CNF", source=self.source, hint=language.hint)
            raise self.error(
                "there is no header",
                Span(first_clause, 1),
                hint="the first line that is no comment must be `p cnf VARIABLES CLAUSES`",
            )
        header_number = self.header_line[0]
        if clause_lines and first_clause < header_number:
            raise self.error(
                "a clause comes before the header",
                Span(first_clause, 1),
                hint=f"move line {header_number}, `p cnf {self.num_variables} {self.num_clauses}`, to the top",
            )
        offsets, literals = self.clauses(clause_lines)
        shown = self.shown()
        weights = self.weights()
        return Cnf(self.num_variables, offsets, literals, weights, self.task, self.source, shown)

    def comment(self, line: _Line, words: list[str]) -> None:
        if len(words) < 2:
            return
        if words[1] == "p" and len(words) > 2 and words[2] == "weight":
            self.weight_lines.append((line, 3))
        elif words[1] == "p" and len(words) > 2 and words[2] == "show":
            self.show_lines.append((line, 3))
        elif words[1] == "ind" and re.fullmatch(r"c\s+ind(\s+\d+)+\s*", line[1]):
            self.show_lines.append((line, 2))
        elif words[1] == "t" and len(words) == 3 and words[2] in TASKS:
            self.task = words[2]
        elif words[1] == "p" and len(words) > 3 and (close := nearest(words[2], _PARAMETERS, 0.7)):
            message = f"`c p {words[2]}` is a comment, and no `c p {close}`"
            warn(message, source=self.source, text=self.text, span=_whole(*line), hint=f"did you mean `{close}`?")

    def header(self, number: int, line: str) -> None:
        spans, words = zip(*_words([(number, line)]))
        if self.header_line[0]:
            message = f"a second header; the first is on line {self.header_line[0]}"
            raise self.error(message, _whole(number, line), hint="one file holds one formula")
        if len(words) > 1 and words[1] in ("wcnf", "pcnf", "dnf", "qcnf", "sat"):
            message = f"the format `p {words[1]}` is not supported"
            raise self.error(message, spans[1], "only `p cnf VARIABLES CLAUSES` is read", UnsupportedError)
        if len(words) != 4 or words[1] != "cnf" or not all(_COUNT.fullmatch(word) for word in words[2:]):
            raise self.error("the header is malformed", _whole(number, line), hint="write `p cnf VARIABLES CLAUSES`")
        self.num_variables, self.num_clauses, self.header_line = int(words[2]), int(words[3]), (number, line)
        if self.num_variables > 2**31 - 1:
            raise self.error("more than 2147483647 variables", spans[2])

    def clauses(self, lines: list[_Line]) -> tuple[np.ndarray, np.ndarray]:
        joined = "\n".join([line for _, line in lines])
        try:
            if "_" in joined or "+" in joined or not joined.isascii():
                raise ValueError
            tokens = np.array(list(map(int, joined.split())), dtype=np.int64)
        except (ValueError, OverflowError):
            span, word = next(pair for pair in _words(lines) if not _LITERAL.fullmatch(pair[1]))
            shown = word[:40].encode("ascii", "backslashreplace").decode()
            raise self.error(
                f"`{shown}` is not a literal", span, hint="a clause is a list of signed variable numbers closed by 0"
            ) from None

        def word_at(index: int) -> tuple[Span, str]:
            return next(itertools.islice(_words(lines), index, None))

        if not self.strict:
            self.num_variables = max(self.num_variables, min(largest_variable(tokens), 2**31 - 1))
        outside = np.flatnonzero((tokens > self.num_variables) | (tokens < -self.num_variables))
        if len(outside):
            span, word = word_at(int(outside[0]))
            raise self.error(
                f"literal {word} is out of range: the header declares {self.num_variables} variables",
                span,
                hint=f"the largest variable used is {largest_variable(tokens)}; correct the header or the literal, or "
                "give strict=False (--no-strict)",
            )
        ends = np.flatnonzero(tokens == 0)
        if len(tokens) and (len(ends) == 0 or ends[-1] != len(tokens) - 1):
            span, _ = word_at(len(tokens) - 1)
            raise self.error(
                "the last clause is not closed",
                Span(span.line, span.column + span.length),
                hint="every clause ends with 0; the file may have been cut off",
            )
        if self.strict and len(ends) != self.num_clauses:
            raise self.error(
                f"the header declares {self.num_clauses} clauses, the file has {len(ends)}",
                list(_words([self.header_line]))[3][0],
                hint=(
                    "the file was probably cut off"
                    if len(ends) < self.num_clauses
                    else f"write `p cnf {self.num_variables} {len(ends)}`"
                )
                + "; strict=False (--no-strict) takes what there is",
            )
        # Dropping the zeros shifts the i-th end down by i positions.
        offsets = np.concatenate([[0], ends - np.arange(len(ends))]).astype(np.int64)
        return offsets, tokens[tokens != 0].astype(np.int32)

    def literal_of(self, word: str, span: Span, what: str) -> int:
        if not _LITERAL.fullmatch(word) or int(word) == 0:
            raise self.error(f"`{word[:40]}` is not a literal", span, hint=what)
        literal = int(word)
        if not self.strict and abs(literal) < 2**31:
            self.num_variables = max(self.num_variables, abs(literal))
        if abs(literal) > self.num_variables:
            raise self.error(
                f"variable {abs(literal)} is unknown: the header declares {self.num_variables} variables", span
            )
        return literal

    def check_last_line(self) -> None:
        """Refuse a last line without its end that may have been longer, and would then mean something else."""
        last = self.text[self.text.rfind("\n") + 1 :]
        is_weight = last.startswith("w ") and not re.fullmatch(r"w\s+\S+\s+\S+\s+0\s*", last)
        if last and (is_weight or any(line != last and line.startswith(last) for line in _MEANT)):
            raise self.error(
                "the file ends within this line",
                _whole(self.text.count("\n") + 1, last),
                hint="it was probably cut off; close the line if it is whole",
            )

    def shown(self) -> tuple[int, ...] | None:
        """The variables that are shown, None for all."""
        shown: set[int] = set()
        for line, skip in self.show_lines:
            words = list(_words([line], skip))
            if not words or words[-1][1] != "0":
                raise self.error("the show line is not closed", _behind(*line), hint="it ends with 0")
            shown |= {abs(self.literal_of(word, at, "write `c p show VARIABLE ... 0`")) for at, word in words[:-1]}
        if self.show_lines and len(shown) != self.num_variables:
            if self.projected:
                return tuple(sorted(shown))
            number, line = self.show_lines[0][0]
            raise self.error(
                f"projection is not supported: {len(shown)} of {self.num_variables} variables are shown",
                Span(number, 1, line.index("show" if "show" in line else "ind") + 4),
                kind=UnsupportedError,
                hint="without these lines the count is over all variables; `circuit.forget(...)` leaves out those that "
                "are not shown, and `model_count` of the result is 2**n times the projected count for n of them, "
                "where it is still deterministic (else it says so)",
            )
        return None

    def weights(self) -> tuple[np.ndarray, np.ndarray] | None:
        if not self.weight_lines:
            return None
        weight_at: dict[int, float] = {}
        line_of: dict[int, _Line] = {}
        for line, skip in self.weight_lines:
            words = list(_words([line], skip))
            form = "`c p weight LITERAL WEIGHT 0`" if skip == 3 else "`w LITERAL WEIGHT`"
            if len(words) == 3 and words[2][1] == "0":
                words = words[:2]
            elif skip == 3 and len(words) == 2:
                raise self.error("the weight line is not closed", _behind(*line), hint=f"write {form}")
            if len(words) != 2:
                raise self.error("the weight line is malformed", _whole(*line), hint=f"write {form}")
            (span, word), (weight_span, weight_word) = words
            literal = self.literal_of(word, span, f"write {form}")
            weight = self.weight_of(weight_word, weight_span, both_one=skip == 1 and literal > 0)
            pairs = [(literal, 1.0), (-literal, 1.0)] if weight is None else [(literal, weight)]
            for one, value in pairs:
                if weight_at.get(one, value) != value:
                    raise self.error(
                        f"literal {one} has weight {value:g} here and {weight_at[one]:g} on line {line_of[one][0]}",
                        weight_span,
                        hint="keep one of the two lines",
                    )
                weight_at[one] = value
                line_of.setdefault(one, line)
        positive, negative = np.ones(self.num_variables), np.ones(self.num_variables)
        for literal, weight in weight_at.items():
            side, other = (positive, negative) if literal > 0 else (negative, positive)
            side[abs(literal) - 1] = weight
            if -literal not in weight_at:
                other[abs(literal) - 1] = 1 - weight
        return positive, negative

    def weight_of(self, word: str, span: Span, both_one: bool) -> float | None:
        """The number, or None for the mark of the older format, -1, that says: both literals weigh one."""
        try:
            above, slash, below = word.partition("/")
            weight = number_of(above)
            if slash:
                number_of(below)
                weight = float(Fraction(word))
        except (ValueError, ZeroDivisionError, OverflowError):
            message = f"`{word[:40]}` is not a weight"
            raise self.error(message, span, hint="a weight is a number, or a fraction") from None
        if both_one and weight == -1:
            return None
        if not math.isfinite(weight):
            raise self.error(f"the weight {word} is not finite", span)
        if vanishes(word, weight):
            raise self.error(f"the weight {word} is too small for 64 bits", span, "write 0 where it is to be zero")
        return weight + 0.0  # no minus zero


def format_dimacs(cnf: Cnf) -> str:
    """DIMACS text that `parse_dimacs` reads back to the same formula and weights."""
    rows = [f"c t {cnf.task}"] if cnf.task else []
    rows.append(f"p cnf {cnf.num_variables} {cnf.num_clauses}")
    if cnf.shown is not None:
        rows.append(" ".join(map(str, ["c p show", *cnf.shown, 0])))
    if cnf.weights is not None:
        for variable, (positive, negative) in enumerate(zip(*cnf.weights), start=1):
            rows.append(f"c p weight {variable} {float(positive)!r} 0")
            rows.append(f"c p weight -{variable} {float(negative)!r} 0")
    rows += [" ".join(map(str, [*clause, 0])) for clause in cnf.clauses()]
    return "\n".join(rows) + "\n"


def write_dimacs(cnf: Cnf, path: str | os.PathLike) -> None:
    """Write DIMACS, atomically; gzipped if the name ends in `.gz`."""
    text = format_dimacs(cnf)
    if os.fspath(path).endswith(".gz"):
        import gzip

        with atomic_write(path, "wb") as file:
            file.write(gzip.compress(text.encode(), mtime=0))
    else:
        with atomic_write(path) as file:
            file.write(text)


_WORD_OPERATORS = {"and": "&", "or": "|", "not": "~", "xor": "^"}


def refuse_content(text: str) -> None:
    """Raise DomainError for a text that is a formula, or what a file would hold, where a path belongs."""
    if "\n" in text:
        raise DomainError(
            "the source is the text of a file, and a text names a file",
            hint="read it first: compile(derivable.circuit.formulas.dimacs.parse_dimacs(text))",
        )
    if os.path.exists(text) or os.path.splitext(text)[1] or os.path.dirname(text):
        return
    words = re.findall(r"[^\W\d]\w*|\S", text)
    if not any(word in "&|~^()" or word in _WORD_OPERATORS for word in words):
        return
    names = dict.fromkeys(word for word in words if word.isidentifier() and word not in _WORD_OPERATORS)
    formula = re.sub(r"[^\W\d]\w*", lambda word: _WORD_OPERATORS.get(word[0], word[0]), text).replace("~ ", "~")
    made = f"{', '.join(names)}{',' * (len(names) == 1)} = variables('{' '.join(names)}')"
    raise DomainError(
        f"{text!r} is a text, and a text names a file: there is none of this name",
        hint=f"write the formula in Python: {made}; compile({formula})",
    )


def cnf_of(
    clauses: str | os.PathLike | Cnf | Iterable[Sequence[int]] | np.ndarray,
    num_variables: int | None = None,
    weights: Mapping | tuple | None = None,
    look: Callable[[], Any] = lambda: None,
    strict: bool = True,
) -> Cnf:
    """A `Cnf` from a path, a `Cnf`, or clauses; `weights` replaces those of the file."""
    if isinstance(clauses, (str, os.PathLike)):
        if isinstance(clauses, str):
            refuse_content(clauses)
        cnf = read_dimacs(clauses, look, strict=strict)
    elif isinstance(clauses, Cnf):
        cnf = clauses
        if cnf.shown is not None:
            shown = ", ".join(map(str, cnf.shown[:8])) + ("..." if len(cnf.shown) > 8 else "")
            hint = "`derivable count FILE` counts over what is shown"
            raise UnsupportedError(f"only variables {shown} are shown", hint=hint, source=cnf.source)
    else:
        return cnf_from_clauses(clauses, num_variables, weights, look)  # type: ignore[arg-type]
    if num_variables is not None and num_variables < cnf.num_variables:
        raise DomainError(
            f"num_variables is {num_variables}, and the formula has {cnf.num_variables} variables",
            hint="leave num_variables out",
        )
    wanted = cnf.num_variables if num_variables is None else num_variables
    if weights is None and cnf.weights is not None and wanted > cnf.num_variables:
        ones = np.ones(wanted - cnf.num_variables)
        weights = tuple(np.concatenate([w, ones]) for w in cnf.weights)
    both = cnf.weights if weights is None else checked_weights(weights, wanted)
    return Cnf(wanted, cnf.offsets, cnf.literals, both, cnf.task, cnf.source)
