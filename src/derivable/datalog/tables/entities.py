"""The terms of one run, hash-consed: a term is one word, and equal terms are one term.

Terms are numbered 0, 1, ... as they are made, fields before the terms that have them. Each constructor has a table of
the words of its fields, whose row numbers are the numbers of its terms: so equality is exact, and making, testing and
taking apart are functions of whole columns.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from derivable.core.diagnostics import DerivableError
from derivable.core.forks import renew_in_children
from derivable.core.interrupts import sigint_deferred
from derivable.datalog.tables.storage import Table
from derivable.datalog.values.constructors import Constructor, check_term, check_type
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.terms import Entity, subterms
from derivable.datalog.values.values import ValueType, show_column, sort_keys, word_of
from derivable.device.cpu.memory import empty, longer, next_length

# (text such as `Node(3, Leaf())`, constructors, type) -> term. Raises ParseError or BindingError.
Reader = Callable[[str, Mapping[str, Constructor], ValueType], Entity]
_creating = threading.Lock()
renew_in_children(globals(), _creating=threading.Lock)


class EntityStore:
    """The terms of a run.

    constructors  name -> constructor
    size          how many terms there are
    symbols       the texts in their fields; its `entities` is this store
    read          the term of a type that a text is, by the constructors
    """

    def __init__(self, constructors: Mapping[str, Constructor], symbols: SymbolTable, read: Reader):
        self.constructors, self.read = constructors, read
        # The two would keep one another, and all texts of a run, until Python looks for cycles.
        self._symbols = weakref.ref(symbols)
        self.size = 0
        self._number = {name: i for i, name in enumerate(constructors)}
        self._tables = {name: _table(c) for name, c in constructors.items()}
        # [row of its constructor's table] the term
        self._terms = {name: empty(16, np.int64) for name in constructors}
        # [term] number of its constructor, its row, and its height
        self._kinds, self._rows, self._heights = empty(16, np.int32), empty(16, np.int64), empty(16, np.int64)
        self._shown: list[Entity | None] = []
        self._known: dict[Entity, int] = {}

    @property
    def symbols(self) -> SymbolTable:
        symbols = self._symbols()
        assert symbols is not None, "the terms of a run are used while its symbols are there"
        return symbols

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_symbols": self.symbols}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._symbols = weakref.ref(state["_symbols"])

    def copy(self, symbols: SymbolTable) -> EntityStore:
        """A store with the same terms under the same words."""
        other = EntityStore(self.constructors, symbols, self.read)
        other.size = self.size
        for name in ("_kinds", "_rows", "_heights"):
            setattr(other, name, getattr(self, name)[: self.size].copy())
        for name, table in self._tables.items():
            other._tables[name].insert_from(table)
            other._terms[name] = self._terms[name][: table.size].copy()
        other._shown, other._known = list(self._shown), dict(self._known)
        return other

    # Columns

    def create(self, name: str, fields: Sequence[np.ndarray], count: int) -> np.ndarray:
        """The terms [row] with these words of fields [row]; new ones get the next numbers, in order of rows."""
        # Branches of a database have one store, and a Ctrl-C must not leave terms half inserted.
        with sigint_deferred(), _creating:
            return self._create(name, fields, count)

    def _create(self, name: str, fields: Sequence[np.ndarray], count: int) -> np.ndarray:
        table, before = self._tables[name], self._tables[name].size
        rows = table.insert(fields, count)
        added = table.size - before
        if added:
            terms, size = self._terms[name], self.size + added
            if len(terms) < table.size:
                terms = self._terms[name] = longer(terms, next_length(len(terms), table.size), before)
            terms[before : table.size] = np.arange(self.size, size)
            if len(self._kinds) < size:
                room = next_length(len(self._kinds), size)
                for part in ("_kinds", "_rows", "_heights"):
                    setattr(self, part, longer(getattr(self, part), room, self.size))
            self._kinds[self.size : size] = self._number[name]
            self._rows[self.size : size] = np.arange(before, table.size)
            heights = np.zeros(added, np.int64)
            for i, t in enumerate(self.constructors[name].fields):
                if t.family == "entity":
                    np.maximum(heights, self._heights[table.column(i, slice(before, table.size))] + 1, out=heights)
            self._heights[self.size : size] = heights
            self.size = size
        return self._terms[name][rows]

    def has_functor(self, name: str, terms: np.ndarray) -> np.ndarray:
        """Whether terms [row] are made by this constructor."""
        return self._kinds[terms] == self._number[name]

    def field(self, name: str, position: int, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(words [row] of a field, whether terms [row] have it)."""
        there = self.has_functor(name, terms)
        rows = np.where(there, self._rows[terms], 0)
        table = self._tables[name]
        words = table.column(position, rows) if table.size else np.zeros(len(terms), np.int64)
        return words, there

    def parts(self, terms: np.ndarray) -> np.ndarray:
        """The terms and all terms in them, each once, ascending: fields before the terms that have them."""
        is_part = np.zeros(self.size, bool)
        fresh = np.unique(terms)
        while len(fresh):
            is_part[fresh] = True
            below = [np.empty(0, np.int64)]
            for name, constructor in self.constructors.items():
                made_here = fresh[self.has_functor(name, fresh)]
                for i, t in enumerate(constructor.fields):
                    if t.family == "entity" and len(made_here):
                        below.append(self.field(name, i, made_here)[0])
            fresh = np.unique(np.concatenate(below))
            fresh = fresh[~is_part[fresh]]
        return np.flatnonzero(is_part)

    def is_of(self, t: ValueType, terms: np.ndarray) -> np.ndarray:
        """Whether terms [row] are of a data type."""
        numbers = [self._number[c.name] for c in self.constructors.values() if t.name in ("Entity", c.type.name)]
        return np.isin(self._kinds[terms], numbers)

    def ranks(self, terms: np.ndarray) -> np.ndarray:
        """Integers [row] in the order of the terms, equal ones alike; the order is that of `Entity`."""
        parts = self.parts(terms)
        parts = parts[np.argsort(self._heights[parts], kind="stable")]
        rank = np.zeros(self.size, np.int64)
        rank[parts] = np.arange(len(parts))
        heights = self._heights[parts]
        # Of one height there are often few, of which one needs no sorting.
        starts = np.flatnonzero(np.diff(heights, prepend=-1))
        lengths = np.diff(starts, append=len(parts))
        for start, length in zip(starts[lengths > 1].tolist(), lengths[lengths > 1].tolist()):
            level = parts[start : start + length]
            for name in sorted(self.constructors):
                made_here = level[self.has_functor(name, level)]
                if len(made_here) > 1:
                    keys = [
                        rank[words] if t.family == "entity" else sort_keys(words, t, self.symbols)
                        for words, t in zip(self.rows_of(name, made_here)[1:], self.constructors[name].fields)
                    ]
                    made_here = made_here[np.lexsort(keys[::-1])]
                rank[made_here] = np.arange(start, start + len(made_here))
                start += len(made_here)
        return rank[terms]

    def rows_of(self, name: str, terms: np.ndarray) -> list[np.ndarray]:
        """The rows of a constructor's relation for those of the terms that it makes: columns term, fields."""
        made_here = terms[self.has_functor(name, terms)]
        return [made_here, *(self.field(name, i, made_here)[0] for i in range(len(self.constructors[name].fields)))]

    # Python values

    def lookup(self, terms: np.ndarray) -> np.ndarray:
        """Terms [row] as an object array; equal ones are one object."""
        self._shown += [None] * (self.size - len(self._shown))
        shown = self._shown
        missing = [term for term in self.parts(terms).tolist() if shown[term] is None]
        if missing:
            self._build(np.array(missing, np.int64))
        table = np.empty(len(shown), dtype=object)
        table[:] = shown
        return table[terms]

    def _build(self, terms: np.ndarray) -> None:
        shown = self._shown
        rows: dict[int, tuple[str, tuple[Any, ...]]] = {}
        for name, constructor in self.constructors.items():
            made_here, *columns = self.rows_of(name, terms)
            values = [
                words.tolist() if t.family == "entity" else show_column(words, t, self.symbols).tolist()
                for words, t in zip(columns, constructor.fields)
            ]
            fields = list(zip(*values)) if values else [()] * len(made_here)
            rows.update(zip(made_here.tolist(), ((name, row) for row in fields)))
        nested_fields = {
            name: {i for i, t in enumerate(c.fields) if t.family == "entity"} for name, c in self.constructors.items()
        }
        for term in terms.tolist():
            name, row = rows[term]
            nested = nested_fields[name]
            shown[term] = Entity(name, *(shown[v] if i in nested else v for i, v in enumerate(row)) if nested else row)

    def intern(self, value: Any, t: ValueType) -> int:
        """The word of a term, or of the text of one. Raises TypeMismatchError if the program has no such term."""
        return int(self.intern_all([value], t)[0])

    def intern_all(self, values: Iterable[Any], t: ValueType) -> np.ndarray:
        """Words [row] of terms, or texts of terms, of a type."""
        terms = [self.read(value, self.constructors, t) if isinstance(value, str) else value for value in values]
        known = self._known
        fresh = [term for term in dict.fromkeys(terms) if term not in known]
        if fresh:
            self._insert(fresh)
        for functor in dict.fromkeys(term.functor for term in terms) if t.name != "Entity" else ():
            if self.constructors[functor].type.name != t.name:
                check_type(next(term for term in terms if term.functor == functor), t, self.constructors)
        return np.fromiter((known[term] for term in terms), np.int64, len(terms))

    def parsed(self, texts: Iterable[str], t: ValueType) -> tuple[np.ndarray, np.ndarray]:
        """(words [row] of the terms of a type that texts are, whether [row] they are such)."""
        word_of_text: dict[str, int] = {}
        for text in (texts := list(texts)):
            if text not in word_of_text:
                try:
                    word_of_text[text] = self.intern(text, t)
                except DerivableError:
                    word_of_text[text] = -1
        words = np.fromiter((word_of_text[text] for text in texts), np.int64, len(texts))
        return np.maximum(words, 0), words >= 0

    def _insert(self, terms: list[Entity]) -> None:
        """Insert terms and the terms in them, all of one height and constructor at a time."""
        waiting: dict[tuple[int, str], list[Entity]] = {}
        for term in subterms(terms):
            if term not in self._known:
                check_term(term, self.constructors)
                waiting.setdefault((term.height, term.functor), []).append(term)
        order = {name: i for i, name in enumerate(self.constructors)}
        for key in sorted(waiting, key=lambda key: (key[0], order[key[1]])):
            group, constructor = waiting[key], self.constructors[key[1]]
            columns = []
            for i, t in enumerate(constructor.fields):
                values = [term.fields[i] for term in group]
                words = (
                    [self._known[v] for v in values]
                    if t.family == "entity"
                    else [word_of(v, t, self.symbols) for v in values]
                )
                columns.append(np.array(words, np.int64))
            self._known.update(zip(group, self.create(key[1], columns, len(group)).tolist()))


def _table(constructor: Constructor) -> Table:
    # Of rows without tags nobody promises a number.
    table = Table(f"fields of {constructor.name}", constructor.fields, _no_tags)
    table.row_set.may_have_prefixes = False
    return table


def _no_tags(count: int) -> np.ndarray:
    return empty(count, np.int8)
