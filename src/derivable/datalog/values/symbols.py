"""The texts of a run, numbered, and other values that are no words: durations, tensors and large integers."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from derivable.core.forks import renew_in_children
from derivable.datalog.policy.costs import policy
from derivable.datalog.values import tensors
from derivable.datalog.values.datetimes import Duration
from derivable.datalog.values.text_arena import Encoded, TextArena
from derivable.datalog.values.values import ValueType, ranks

_interning = threading.Lock()
renew_in_children(globals(), _interning=threading.Lock)


class TermStore(Protocol):
    """What columns of terms ask of the terms of a run; `tables.entities` says what each answer is."""

    constructors: Mapping[str, Any]

    def copy(self, symbols: SymbolTable) -> TermStore: ...
    def create(self, name: str, fields: Sequence[np.ndarray], count: int) -> np.ndarray: ...
    def has_functor(self, name: str, terms: np.ndarray) -> np.ndarray: ...
    def field(self, name: str, position: int, terms: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...
    def is_of(self, t: ValueType, terms: np.ndarray) -> np.ndarray: ...
    def ranks(self, terms: np.ndarray) -> np.ndarray: ...
    def lookup(self, terms: np.ndarray) -> np.ndarray: ...
    def intern(self, value: Any, t: ValueType) -> int: ...
    def intern_all(self, values: Iterable[Any], t: ValueType) -> np.ndarray: ...
    def parsed(self, texts: Iterable[str], t: ValueType) -> tuple[np.ndarray, np.ndarray]: ...


class CodedTexts(Sequence[str]):
    """A column of texts that repeat: distinct[code] of each row."""

    def __init__(self, codes: array[int], distinct: list[str]):
        self.codes, self.distinct = codes, distinct

    def __len__(self) -> int:
        return len(self.codes)

    def __iter__(self) -> Iterator[str]:
        return map(self.distinct.__getitem__, self.codes)

    def __getitem__(self, rows: Any) -> Any:
        chosen = self.codes[rows]
        return CodedTexts(chosen, self.distinct) if isinstance(rows, slice) else self.distinct[chosen]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


@dataclass
class SymbolTable:
    """Strings interned to ids 0, 1, ...; one table per run. `entities` has the terms of the run; a table outside of a
    run has none.

    ids     of all texts, or with `arena` of some
    texts   all of them, or with `arena` the first ones
    arena   all of them where they are many
    expect  who is told how many bytes of texts are to be made from others, and may raise an error; None for nobody
    things  durations, tensors and large integers, each with one id, by what equal ones have in common in
            `known`
    """

    ids: dict[str, int] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    entities: TermStore | None = None
    known: dict[Any, int] = field(default_factory=dict)
    things: list[Any] = field(default_factory=list)
    arena: TextArena | None = None
    expect: Callable[[int], None] | None = field(default=None, compare=False, repr=False)

    def intern(self, text: str) -> int:
        number = self.ids.get(text)
        if number is None:
            # Branches of a database have one table, and may be added to in several threads.
            with _interning:
                if self.arena is not None:
                    number = int(self.arena.intern([text], Encoded.of)[0])
                elif (number := self.ids.get(text)) is None:
                    number = len(self.texts)
                    # In this order, so that a Ctrl-C in between does no harm.
                    self.texts.append(text)
                self.ids[text] = number
        return number

    def intern_all(self, texts: Iterable[str]) -> np.ndarray:
        """Ids [text] int64."""
        texts = texts if isinstance(texts, list) else list(texts)
        with _interning:
            if (arena := self._arena_for(len(texts))) is not None:
                return arena.intern(texts, Encoded.of)
            numbers: list[int] = []
            known, add, note = self.ids.get, self.texts.append, numbers.append
            if not {*map(type, texts)} <= {str}:
                texts = list(map(str.__str__, texts))
            # One pass: a look at a text that is not in cache costs more than all the rest.
            for text in texts:
                number = known(text)
                if number is None:
                    number = len(self.texts)
                    add(text)
                    self.ids[text] = number
                note(number)
        return np.fromiter(numbers, np.int64, len(numbers))

    def intern_encoded(self, texts: Encoded) -> np.ndarray:
        """Ids [text] int64."""
        with _interning:
            if (arena := self._arena_for(len(texts))) is not None:
                return arena.intern(texts, lambda part: part)
        return self.intern_all(texts.decoded())

    def intern_joined(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """Ids [row] int64 of the texts that those with the ids of each row are, one behind the other."""
        # Bytes are copied in half the time that objects take for 1,000 texts, in a sixth for 60,000.
        many = policy().many // 16
        with _interning:
            if (arena := self._arena_for(len(columns[0]), many)) is not None:
                return arena.intern_joined(np.column_stack(columns))
        return self.intern_all(list(map("".join, zip(*(self.lookup(ids).tolist() for ids in columns)))))

    def lengths(self, ids: np.ndarray) -> np.ndarray:
        """Bytes [id] int64 of texts in UTF-8."""
        if self.arena is not None:
            with _interning:
                return self.arena.lengths(ids)
        texts = self.lookup(ids).tolist()
        is_ascii = all(map(str.isascii, texts))
        lengths = map(len, texts if is_ascii else (text.encode("utf-8", "surrogatepass") for text in texts))
        return np.fromiter(lengths, np.int64, len(texts))

    def intern_array(self, texts: np.ndarray) -> np.ndarray:
        """Ids [text] int64 of an array of NumPy's type of texts of one width."""
        with _interning:
            if (arena := self._arena_for(len(texts))) is not None:
                return arena.intern(texts, Encoded.of_array)
        return self.intern_all(texts.tolist())

    def _arena_for(self, count: int, many: int | None = None) -> TextArena | None:
        """The arena, if there are enough texts for one with this number more: `many`, None for the policy's."""
        if self.arena is None and len(self.texts) + count >= (policy().many if many is None else many):
            arena = TextArena()
            arena.intern(self.texts, Encoded.of)
            self.arena = arena
        return self.arena

    def find(self, text: str) -> int | None:
        """The id of a text, None if it has none."""
        number = self.ids.get(text)
        if number is None and self.arena is not None:
            with _interning:
                number = self.arena.find(text)
        return number

    def lookup(self, ids: np.ndarray) -> np.ndarray:
        """Texts [id] as an object array."""
        if self.arena is not None:
            with _interning:
                return self.arena.lookup(ids)
        if len(ids) < len(self.texts) // 8:
            things = np.empty(len(ids), dtype=object)
            things[:] = [self.texts[i] for i in ids.tolist()]
            return things
        # A copy, because another thread may add texts between the two lines.
        texts = list(self.texts)
        table = np.empty(len(texts), dtype=object)
        table[:] = texts
        return table[ids]

    def intern_thing(self, value: Any, value_type: ValueType) -> int:
        """The id of a duration, a tensor or a large integer."""
        if value_type.family == "duration":
            value = Duration.of(value)
        key = tensors.key_of(value) if value_type.family == "tensor" else value
        number = self.known.get(key)
        if number is None:
            with _interning:
                number = self.known.get(key)
                if number is None:
                    number = len(self.things)
                    self.things.append(tensors.unchangeable(value) if value_type.family == "tensor" else value)
                    self.known[key] = number
        return number

    def things_of(self, ids: np.ndarray) -> list[Any]:
        """Durations, tensors or large integers [id]."""
        things = self.things
        return [things[i] for i in ids.tolist()]

    def duration_ranks(self, ids: np.ndarray) -> np.ndarray:
        """Ranks [row] int64 of durations [row] in their order."""
        distinct, inverse = np.unique(ids, return_inverse=True)
        things = np.empty(len(distinct), dtype=object)
        things[:] = self.things_of(distinct)
        return ranks(things)[inverse]

    @property
    def terms(self) -> TermStore:
        """The terms of a run."""
        assert self.entities is not None, "columns of terms belong to a run"
        return self.entities

    def copy(self) -> SymbolTable:
        with _interning:
            arena = None if self.arena is None else self.arena.copy()
            copied = SymbolTable(dict(self.ids), list(self.texts), None, dict(self.known), list(self.things), arena)
        copied.entities = None if self.entities is None else self.entities.copy(copied)
        return copied
