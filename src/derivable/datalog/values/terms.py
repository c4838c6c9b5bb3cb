"""Terms of algebraic data types as Python values."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable
from functools import total_ordering
from typing import Any

import numpy as np

from derivable.core.diagnostics import DomainError
from derivable.datalog.values import tensors
from derivable.datalog.values.datetimes import Duration, datetime_literal


@total_ordering
class Entity:
    """A term, such as `Node(3, Leaf())`: a functor and its fields, which may be terms.

        tree = Entity("Node", 3, Entity("Leaf"))

    functor  the name of a constructor
    fields   numbers, texts, bools, dates (without a time zone they are UTC), durations and terms
    height   0 without fields that are terms, else one more than the largest of theirs

    Terms are immutable; equal ones are equal by structure. Their order is by height, then by functor, then by fields
    from left to right, so that small terms come first. Depth is bounded by memory only.
    """

    __slots__ = ("_hash", "fields", "functor", "height")
    __match_args__ = ("functor", "fields")

    functor: str
    fields: tuple[Any, ...]
    height: int

    def __init__(self, functor: str, *fields: Any):
        if not isinstance(functor, str) or not functor.isidentifier():
            raise DomainError(f"the functor of a term is an identifier, not {functor!r}")
        values = tuple(map(_plain, fields))
        height = 0
        for position, value in enumerate(values):
            if isinstance(value, Entity):
                height = max(height, value.height + 1)
            elif not isinstance(value, (int, float, str, dt.datetime, dt.timedelta, Duration)):
                raise DomainError(
                    f"field {position + 1} of {functor} is a {type(value).__name__}",
                    hint="fields are numbers, texts, bools, dates, durations and terms",
                )
        set_ = object.__setattr__
        set_(self, "functor", functor)
        set_(self, "fields", values)
        set_(self, "height", height)
        # The fields' hashes are there already, so this is no recursion.
        set_(self, "_hash", hash((functor, values)))

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"terms are immutable: `{name}` cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"terms are immutable: `{name}` cannot be deleted")

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Entity):
            return NotImplemented
        return self._hash == other._hash and _compare(self, other) == 0

    def __lt__(self, other: Entity) -> bool:
        return _compare(self, other) < 0 if isinstance(other, Entity) else NotImplemented

    def __repr__(self) -> str:
        parts: list[str] = []
        # Texts to write, and terms to take apart.
        stack: list[Any] = [self]
        while stack:
            top = stack.pop()
            if not isinstance(top, Entity):
                parts.append(top)
                continue
            pieces: list[Any] = [f"{top.functor}("]
            for position, value in enumerate(top.fields):
                if position:
                    pieces.append(", ")
                pieces.append(value if isinstance(value, Entity) else show_value(value))
            stack += [")", *reversed(pieces)]
        return "".join(parts)

    def __copy__(self) -> Entity:
        return self

    def __deepcopy__(self, memo: Any) -> Entity:
        return self

    def __reduce__(self) -> tuple[Callable[..., Entity], tuple[Any, ...]]:
        # Flat, because pickle recurses; fields that are terms become positions in the list.
        positions: dict[Entity, int] = {}
        flat = []
        for term in subterms([self]):
            children = {i: positions[f] for i, f in enumerate(term.fields) if isinstance(f, Entity)}
            flat.append(
                (term.functor, tuple(None if i in children else f for i, f in enumerate(term.fields)), children)
            )
            positions[term] = len(positions)
        return _from_flat, (flat,)


_ESCAPED = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\0": "\\0"})


def show_character(value: str) -> str:
    """A character as the language writes it."""
    return "'\\''" if value == "'" else "'\"'" if value == '"' else f"'{value.translate(_ESCAPED)}'"


def show_value(value: Any) -> str:
    """A value as the language writes it."""
    if isinstance(value, (bool, np.bool_)):
        return "true" if value else "false"
    if isinstance(value, str):
        return f'"{value.translate(_ESCAPED)}"'
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    if isinstance(value, dt.datetime):
        return f't"{datetime_literal(value)}"'
    if (duration := Duration.of(value)) is not None:
        return f'd"{duration}"'
    return tensors.shown(value) if tensors.is_tensor(value) else str(value)


def atom_text(relation: str, row: Iterable[Any]) -> str:
    """`edge(0, 1)`"""
    return f"{relation}({', '.join(map(show_value, row))})"


def _plain(field: Any) -> Any:
    """A field as results show it: Python's numbers, dates in UTC, timedeltas where a duration has no months."""
    if isinstance(field, np.generic) and field.dtype.kind not in "mM":
        return field.item()
    if isinstance(field, dt.datetime) and field.tzinfo is not None:
        return field.astimezone(dt.UTC).replace(tzinfo=None)
    if isinstance(field, np.datetime64):
        return field.astype("datetime64[us]").item()
    duration = _duration(field)
    return field if duration is None else duration.plain()


def _duration(field: Any) -> Duration | None:
    # A text that reads as a duration, `"1"`, is a text.
    return None if isinstance(field, str) else Duration.of(field)


def _from_flat(flat: list[tuple[str, tuple[Any, ...], dict[int, int]]]) -> Entity:
    built: list[Entity] = []
    for functor, fields, children in flat:
        built.append(Entity(functor, *(built[children[i]] if i in children else f for i, f in enumerate(fields))))
    return built[-1]


def _compare(a: Entity, b: Entity) -> int:
    """-1, 0 or 1; without recursion, and each pair of terms once."""
    seen: set[tuple[int, int]] = set()
    stack: list[tuple[Any, Any]] = [(a, b)]
    while stack:
        x, y = stack.pop()
        if x is y:
            continue
        if not isinstance(x, Entity) or not isinstance(y, Entity):
            if isinstance(x, Entity) or isinstance(y, Entity):
                return 1 if isinstance(x, Entity) else -1
            if x == y:
                continue
            left, right = _duration(x) or x, _duration(y) or y
            try:
                return -1 if left < right else 1
            except TypeError:
                # Fields of different kinds, which no program has.
                return -1 if type(left).__name__ < type(right).__name__ else 1
        if (id(x), id(y)) in seen:
            continue
        seen.add((id(x), id(y)))
        left = x.height, x.functor, len(x.fields)
        right = y.height, y.functor, len(y.fields)
        if left != right:
            return -1 if left < right else 1
        stack += reversed(list(zip(x.fields, y.fields)))
    return 0


def subterms(terms: Iterable[Entity]) -> list[Entity]:
    """The terms and all terms in them, each once, fields before the terms that have them."""
    done: dict[Entity, None] = {}
    stack = list(terms)[::-1]
    while stack:
        top = stack[-1]
        if top in done:
            stack.pop()
            continue
        waiting = [f for f in top.fields if isinstance(f, Entity) and f not in done]
        if waiting:
            stack += reversed(waiting)
        else:
            done[stack.pop()] = None
    return list(done)
