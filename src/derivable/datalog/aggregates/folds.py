"""User-defined aggregates, made from a monoid: rows become states, states are combined, a state has a result."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.algebra.element import components, compose, flatten
from derivable.algebra.monoid import SCALAR, Monoid, trace_elements
from derivable.algebra.typed import TypedFunction, TypedMonoid
from derivable.core.diagnostics import DomainError, TypeMismatchError
from derivable.datalog.aggregates.record import AGGREGATES, FAMILIES, Aggregate, Group, Parameter
from derivable.datalog.aggregates.worlds import merged, reached
from derivable.datalog.scalars.arithmetic import scalar_type
from derivable.datalog.tables.tag_columns import Columns, reduce_segments, within
from derivable.datalog.values.values import TYPES, ValueType, words_of_numbers

if TYPE_CHECKING:
    from derivable.datalog.aggregates.groups import Groups


def aggregate(
    name: str,
    monoid: Monoid,
    *,
    lift: Callable[..., Any],
    result: Callable[[Any], Any],
    returns: str,
    takes: str | tuple[str, ...] = "number",
    parameters: Mapping[str, Any] | None = None,
) -> Aggregate:
    """A user-defined aggregate, known by its name in all programs from now on; returns its record.

        avg = aggregate(
            "avg",
            dv.parallel.operator(lambda a, b: (a[0] + b[0], a[1] + b[1]), neutral=(0.0, 0)),
            lift=lambda x: (dv.cast(x, "float64"), 1),
            result=lambda state: state[0] / state[1],
            returns="f64",
        )

    monoid   combines states; commutative, because a relation's rows have no order
    lift     the values of a row -> its state
    result   state -> the value of the aggregate; where it is NaN there is no tuple. An empty group, which is one where
             the groups come from `where`, or there are none, has the monoid's neutral element as its state
    returns  the type of the result, such as "f64" or "usize", or "value" for that of its one variable
    takes    what its variables are: "number", "integer", "float" or "bool"; one word or one for each variable
    parameters  name -> default, a number or a bool: what a program may give in `<...>`, by position or by name. `lift`
                and
             `result` are called with all of them as keywords

    All three functions are traced, as those of a semiring are. With uncertain rows the time grows with the number of
    distinct states. Raises DomainError if the name is taken or something is of the wrong kind.
    """
    families = (takes,) if isinstance(takes, str) else tuple(takes)
    if not isinstance(name, str) or not name.isidentifier():
        raise DomainError(f"the name of an aggregate is an identifier, not {name!r}")
    if not isinstance(monoid, Monoid):
        raise DomainError(
            f"an aggregate folds by an operator, not a {type(monoid).__name__}", hint="dv.parallel.operator"
        )
    for family in families:
        if family not in FAMILIES or family in ("any", "text"):
            raise DomainError(
                f"an aggregate takes numbers and bools, not {family!r}", hint='"number", "integer", "float"'
            )
    if returns not in TYPES and not (returns == "value" and len(families) == 1):
        raise DomainError(f"{returns!r} is not a type of the language", hint=f"one of {', '.join(TYPES)}")
    fold = _Fold(name, monoid, lift, result)
    columns = ("values",) if returns == "value" else (returns,)
    accepted = tuple(_parameter(name, key, default) for key, default in (parameters or {}).items())
    return AGGREGATES.add(
        name, Aggregate(name, families, columns, fold.certain, fold.uncertain, fold.meaning, accepted)
    )


def _parameter(name: str, key: Any, default: Any) -> Parameter:
    if not isinstance(key, str) or not key.isidentifier():
        raise DomainError(f"the parameter {key!r} of the aggregate {name!r} is no identifier")
    if not isinstance(default, (bool, int, float)):
        raise DomainError(
            f"the parameter {key!r} of the aggregate {name!r} is a {type(default).__name__}",
            hint="give its default, a number or a bool",
        )
    kind = "bool" if isinstance(default, bool) else "number"
    return Parameter(key, kind, default, is_positional=kind == "number")


@dataclass(frozen=True)
class _Fold:
    """The three folds of an aggregate that is made from a monoid."""

    name: str
    monoid: Monoid
    lift: Callable[..., Any]
    result: Callable[[Any], Any]

    def typed(
        self, types: Sequence[ValueType], settings: Mapping[str, Any]
    ) -> tuple[TypedFunction, TypedMonoid, TypedFunction]:
        element, neutral = self.monoid.element, self.monoid.neutral
        kinds = {"b": "bool", "i": "int64", "u": "int64", "f": "float64"}
        leaf_types = [kinds[np.asarray(leaf).dtype.kind] for leaf in flatten(element, neutral, "the neutral element")]
        dtypes = [dtype for dtype, size in zip(leaf_types, element.leaf_sizes) for _ in range(size)]
        operands = {f"x{k}": (SCALAR, 0, (scalar_type(t),)) for k, t in enumerate(types)}
        functions = [partial(f, **settings) if settings else f for f in (self.lift, self.result)]
        lift = trace_elements(f"lift of the aggregate {self.name}", functions[0], operands, element, dtypes)
        state = {"state": (element, neutral, leaf_types)}
        result = trace_elements(f"result of the aggregate {self.name}", functions[1], state)
        if len(result.values) != 1:
            raise TypeMismatchError(f"result of the aggregate {self.name} gives {len(result.values)} values, not one")
        return lift, self.monoid.typed(leaf_types), result

    def values(self, groups: Groups, columns: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Typed values [variable] [row], which scalar functions can take."""
        large = [column for column in columns if column.dtype == object]
        if large:
            number = max(large[0].tolist(), key=abs)
            message = f"the aggregate `{self.name}` folds numbers of 64 bits, and {number} needs more"
            groups.error(DomainError, message, "convert it: `x as f64`")
        return columns

    def certain(self, groups: Groups, chosen: np.ndarray) -> None:
        lift, monoid, result = self.typed(groups.value_types, groups.settings)
        chosen = groups.existing(chosen)
        starts, lengths = groups.starts[chosen], groups.sizes[chosen]
        rows = np.repeat(starts, lengths) + within(lengths)
        states = Columns(lift.apply(*((column[rows],) for column in self.values(groups, groups.values))))
        some = np.flatnonzero(lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths[some])])
        folded = reduce_segments(states, offsets, lambda a, b: Columns(monoid.apply(a.parts, b.parts)))
        values = [np.full(len(chosen), value) for value in monoid.neutral]
        for column, part in zip(values, folded.parts):
            column[some] = part
        self.emit(groups, chosen, result.apply(values)[0], None)

    def uncertain(self, groups: Groups, chosen: np.ndarray) -> None:
        lift, monoid, result = self.typed(groups.value_types, groups.settings)
        lifted = lift.apply(*((column,) for column in self.values(groups, groups.values)))
        neutral = [np.full(1, value) for value in monoid.neutral]

        def moved(states: list[np.ndarray], positions: np.ndarray) -> Sequence[np.ndarray]:
            return monoid.apply(states, [column[positions] for column in lifted])

        for reached_now in reached(groups, chosen, groups.order, neutral, moved):
            if groups.keeps_empty:
                of_none = np.repeat(result.apply(neutral)[0], len(reached_now.chosen))
                self.emit(groups, reached_now.chosen, of_none, reached_now.empty)
            values = list(result.apply(reached_now.states))
            owner, (values,), tags = merged(groups.mode, reached_now.owner, values, reached_now.tags)
            self.emit(groups, owner, values, tags)

    def emit(self, groups: Groups, chosen: np.ndarray, values: np.ndarray, tags: Any) -> None:
        fine = np.flatnonzero(values == values)
        t = groups.types[-1]
        words = words_of_numbers(values[fine].astype(scalar_type(t)), t, groups.symbols)
        groups.emit(chosen[fine], [words], None if tags is None else tags[fine])

    def meaning(self, group: Group) -> Iterator[Any]:
        element, neutral = self.monoid.element, self.monoid.neutral
        scalars = [np.asarray(scalar)[()] for scalar in components(element, neutral, "the neutral element")]
        with np.errstate(all="ignore"):
            total = compose(element, neutral, scalars)
            for row in group.rows:
                total = self.monoid.function(
                    total, self.lift(*(np.asarray(v)[()] for v in group.values(row)), **group.settings)
                )
            value = self.result(total, **group.settings)
        if value == value:
            yield np.asarray(value).astype(group.types[-1].dtype).item()
