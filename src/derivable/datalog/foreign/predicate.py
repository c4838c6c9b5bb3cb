"""Foreign predicates: what bodies of rules ask, `name(x, y)`, and Python answers with rows of outputs.

The first arguments are inputs, which must be bound; the others are outputs, and where they are bound too, only the rows
that agree with them count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from derivable.core.diagnostics import DerivableError
from derivable.core.graph import offsets_of
from derivable.datalog.foreign.function import ForeignError, failure, result_words
from derivable.datalog.foreign.signature import Signature
from derivable.datalog.tags.random_facts import Kind
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import ValueType, show_column

# Rows of answers between two looks at the limits of a run, and those of a part.
LOOKS, MOST = 1 << 10, 1 << 16


@dataclass(frozen=True)
class Answers:
    """The rows of outputs for rows of inputs: those of input row i are offsets[i] .. offsets[i + 1].

    offsets        [input row + 1]; of rows whose other answers are elsewhere, the ones that are here
    columns        words [row] of each output that is wanted, None of the others
    probabilities  [row], NaN for a row that is certain; None if all are
    """

    offsets: np.ndarray
    columns: list[np.ndarray | None]
    probabilities: np.ndarray | None


@dataclass(frozen=True)
class ForeignPredicate:
    """One predicate.

    call       of Python values of one row of inputs: an iterable of tuples of outputs, of a value where there is one
               output, or, if `is_tagged`, of pairs (probability, tuple)
    is_tagged  whether rows have tags: each is an independent random fact, the same one wherever the program uses the
               same inputs and outputs
    kind       "chance" where the tags are probabilities under any provenance; see `random_facts`
    at_once    how many inputs `call` takes at once, as a list of tuples, of which it gives a list of the rows of each;
               0 for all that there are, None where it takes the values of one
    closed     of the predicates of the integers from the first input to the second: whether the second is one of them.
               None for all others; these never call `call`
    drops      exceptions that mean that there are no more rows
    """

    name: str
    signature: Signature
    call: Callable[..., Iterable[Any]]
    is_tagged: bool = False
    closed: bool | None = None
    drops: tuple[type[Exception], ...] = ()
    kind: Kind = "tag"
    at_once: int | None = None

    def answers(
        self,
        types: Sequence[ValueType],
        results: Sequence[ValueType | None],
        symbols: SymbolTable,
        columns: Sequence[np.ndarray],
        count: int,
        look: Callable[[], Any] = lambda: None,
        most: Callable[[], int] = lambda: MOST,
    ) -> Iterator[Answers]:
        """The answers to `count` rows of inputs, words [row]; `results` are types of outputs, None if not wanted. They
        come in parts, as nobody knows how many a predicate gives.

        look  checks the limits of the run, now and then
        most  how many answers the next part has at most, about
        """
        shown = [show_column(words, t, symbols).tolist() for words, t in zip(columns, types)]
        rows: list[tuple] = []
        tags: list[float] = []
        counts = np.zeros(count, np.int64)
        inputs, size = list(zip(*shown)) if shown else [()] * count, most()
        for i, (one, call) in enumerate(zip(inputs, self._calls(inputs))):
            for tag, row in self._ask(one, call):
                if not len(rows) % LOOKS:
                    look()
                rows.append(row)
                tags.append(tag)
                counts[i] += 1
                if len(rows) >= size:
                    yield self._worded(rows, tags, counts, results, symbols)
                    rows, tags, counts, size = [], [], np.zeros(count, np.int64), most()
        yield self._worded(rows, tags, counts, results, symbols)

    def _worded(
        self,
        rows: list[tuple],
        tags: list[float],
        counts: np.ndarray,
        results: Sequence[ValueType | None],
        symbols: SymbolTable,
    ) -> Answers:
        """Answers as words; `counts` are those of each row of inputs."""
        words_of: list[np.ndarray | None] = []
        valid = np.ones(len(rows), bool)
        for index, t in enumerate(results):
            if t is None:
                words_of.append(None)
                continue
            what = f"predicate {self.name} gives as output {index + 1}"
            words, fine = result_words(self.name, what, [row[index] for row in rows], t, symbols)
            words_of.append(words)
            valid &= fine
        probabilities = np.array(tags, np.float64) if self.is_tagged else None
        if not valid.all():
            counts = np.bincount(np.repeat(np.arange(len(counts)), counts)[valid], minlength=len(counts))
            words_of = [None if words is None else words[valid] for words in words_of]
            probabilities = None if probabilities is None else probabilities[valid]
        return Answers(offsets_of(counts), words_of, probabilities)

    def _calls(self, inputs: list[tuple]) -> Iterator[Callable[[], Iterable[Any]]]:
        """For each row of inputs what gives its rows."""
        if self.at_once is None:
            yield from (partial(self.call, *one) for one in inputs)
            return
        size = self.at_once or len(inputs)
        for start in range(0, len(inputs), size):
            part = inputs[start : start + size]
            try:
                results = list(self.call(part))
            except self.drops:
                results = [()] * len(part)
            except DerivableError:
                raise
            except Exception as error:
                raise failure(self.name, part[0], error) from error
            if len(results) != len(part):
                raise ForeignError(
                    f"the predicate {self.name} gives {len(results)} lists of rows for {len(part)} inputs",
                    self.name,
                    hint="return one list for each tuple of the list that it takes",
                )
            yield from (partial(iter, one) for one in results)

    def _ask(self, inputs: tuple, call: Callable[[], Iterable[Any]]) -> Iterator[tuple[float, tuple]]:
        """(tag, row) of each answer to a row of inputs."""
        width = len(self.signature.results)
        try:
            for row in call():
                tag: Any = np.nan
                if self.is_tagged and isinstance(row, tuple) and len(row) == 2 and isinstance(row[1], tuple):
                    tag, row = row
                if not isinstance(row, tuple):
                    row = (row,)
                if len(row) != width:
                    raise ForeignError(
                        f"the predicate {self.name} gives {row!r}, {len(row)} values for {width} outputs",
                        self.name,
                        hint="yield one tuple for each row" + (", as (probability, tuple)" if self.is_tagged else ""),
                    )
                yield np.nan if tag is None else float(tag), row
        except self.drops:
            return
        except DerivableError:
            raise
        except Exception as error:
            raise failure(self.name, inputs, error) from error
