"""The record of an aggregate, and the registry of them all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from derivable.core.registry import Registry, nearest
from derivable.datalog.values.terms import show_value
from derivable.datalog.values.values import TYPES, ValueType

if TYPE_CHECKING:
    from derivable.datalog.aggregates.groups import Groups

FAMILIES = ("any", "number", "integer", "float", "text", "bool")
_KINDS = {"integer": "a whole number from 0", "number": "a number", "text": "a text", "bool": "`true` or `false`"}
_TYPES = {"integer": int, "number": (int, float), "text": str, "bool": bool}


@dataclass(frozen=True)
class Parameter:
    """What may stand in `<...>` behind the name: `top<3>`, `rank<asc=true>`, `sort<desc>`.

    kind           "integer" (from 0), "number", "text" or "bool"; the name of a bool alone means true
    default        None: the program must say it
    is_positional  whether a value without a name may be this one
    """

    name: str
    kind: Literal["integer", "number", "text", "bool"]
    default: Any = None
    is_positional: bool = False

    def fits(self, value: Any) -> bool:
        if self.kind != "bool" and isinstance(value, bool):
            return False
        return isinstance(value, _TYPES[self.kind]) and (self.kind != "integer" or value >= 0)


ASC, DESC = Parameter("asc", "bool", False), Parameter("desc", "bool", False)


@dataclass(frozen=True)
class Group:
    """The rows of one group as Python values: what the reference interpreter folds.

    key       the values of the group's variables
    rows      each the arguments, then the variables; in no order
    types     of the aggregate's relation: of the key, then of the result
    settings  parameter -> value
    discrete  whether tags are ignored, as by `count!`
    """

    key: tuple
    rows: list[tuple]
    num_arguments: int
    types: tuple[ValueType, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    discrete: bool = False

    def arguments(self, row: tuple) -> tuple:
        return row[: self.num_arguments]

    def values(self, row: tuple) -> tuple:
        return row[self.num_arguments :]


@dataclass(frozen=True)
class Aggregate:
    """One aggregate.

    takes       the families of its variables ("any", "number", ...), None for any number of variables of any types
    returns     the columns of a result: types' names, "arguments" and "values" (the types of its variables)
    certain     (groups, group numbers [group]) emits the results of groups whose rows are all there
    uncertain   (groups, group numbers [group]) emits those of the others, with tags
    meaning     group -> results, one Python value or tuple each: what the reference interpreter does
    parameters  what may stand in `<...>`
    arguments   whether there may be variables in brackets: "any", "none", or "some" if there must be
    by_weight   what the weights of tags decide, beside how probable results are: which of the "rows" are results, or
                what "values" there are
    has_ranks  whether the first column of a result is the rank of a row, from 0
    """

    name: str
    takes: tuple[str, ...] | None
    returns: tuple[str, ...]
    certain: Callable[[Groups, np.ndarray], None]
    uncertain: Callable[[Groups, np.ndarray], None]
    meaning: Callable[[Group], Iterator[Any]]
    parameters: tuple[Parameter, ...] = ()
    arguments: Literal["any", "none", "some"] = "any"
    by_weight: Literal["rows", "values"] | None = None
    has_ranks: bool = False

    def result_types(self, arguments: Sequence[Any], values: Sequence[Any]) -> list[Any]:
        """The types of the result's columns from those of the arguments and of the variables."""
        columns = {"arguments": arguments, "values": values}
        return [t for word in self.returns for t in columns.get(word) or ([TYPES[word]] if word in TYPES else [])]

    def misuse(
        self, num_arguments: int, num_values: int, written: Sequence[tuple[str | None, Any]]
    ) -> tuple[str, str | None] | None:
        """What is wrong with a use, and what helps; None if it is right."""
        name = self.name
        if self.takes is not None and num_values != len(self.takes):
            count = "one variable" if len(self.takes) == 1 else f"{len(self.takes)} variables"
            return f"`{name}` folds {count}, {num_values} are given", None
        if self.takes is None and not num_values and not set(self.returns) <= {"bool", "usize"}:
            return f"`{name}` needs a variable before the `:`", f"write `{name}(x: ...)`"
        if self.arguments == "some" and not num_arguments:
            return f"`{name}` needs the variables it returns in brackets", f"write `{name}[a](x: ...)`"
        if self.arguments == "none" and num_arguments:
            return f"`{name}` takes no variables in brackets, {num_arguments} are given", f"write `{name}(x: ...)`"
        return self._wrong_parameters(written)

    def _wrong_parameters(self, written: Sequence[tuple[str | None, Any]]) -> tuple[str, str | None] | None:
        known = {p.name: p for p in self.parameters}
        all_known = f"its parameters are {', '.join(known)}" if known else f"write `{self.name}(x: ...)`"
        seen: dict[str, Any] = {}
        for name, value in self._named(written):
            if name is None:
                return f"`{self.name}` has no parameter for {show_value(value)}", all_known
            if name not in known:
                close = nearest(name, known)
                return f"`{self.name}` has no parameter `{name}`", f"did you mean `{close}`?" if close else all_known
            what = f"the parameter `{name}` of `{self.name}` is"
            if name in seen:
                return f"{what} given twice", None
            if not known[name].fits(value):
                return f"{what} {_KINDS[known[name].kind]}, not {show_value(value)}", None
            seen[name] = value
        missing = [p.name for p in self.parameters if p.default is None and p.name not in seen]
        if missing:
            return f"`{self.name}` needs the parameter `{missing[0]}`", f"for instance `{self.name}<3>(x: ...)`"
        if {"asc", "desc"} <= set(seen) and seen["asc"] == seen["desc"]:
            return f"`asc` and `desc` of `{self.name}` contradict each other", "give one of them"
        return None

    def _named(self, written: Sequence[tuple[str | None, Any]]) -> list[tuple[str | None, Any]]:
        """The values with the names of those parameters that they stand for; None where there is no such parameter."""
        free = [p.name for p in self.parameters if p.is_positional]
        pairs = []
        for name, value in written:
            if name is None and free:
                name = free[0]
            if name in free:
                free.remove(name)
            pairs.append((name, value))
        return pairs

    def settings(self, written: Sequence[tuple[str | None, Any]]) -> dict[str, Any]:
        """The value of every parameter, of a use that is right."""
        named = dict(self._named(written))
        values = {p.name: named.get(p.name, p.default) for p in self.parameters}
        if {"asc", "desc"} <= set(values):
            # Descending unless something says otherwise.
            values["asc"] = values["asc"] or ("desc" in named and not values["desc"])
        return values


AGGREGATES: Registry[Aggregate] = Registry("aggregate", more="`derivable.datalog.aggregate` adds one")
