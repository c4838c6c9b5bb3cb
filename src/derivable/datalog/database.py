"""What a run returns: relations as mappings from tuples to tags, backed by columns."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.diagnostics import BindingError
from derivable.datalog.inputs import as_tuple
from derivable.datalog.types import near
from derivable.datalog.values import SymbolTable, fits, ranks, show_column, show_value, word_of

if TYPE_CHECKING:
    from derivable.datalog.storage import Table


class RelationView(Mapping):
    """The tuples of one relation with their tags; iterates in sorted order.

    columns  typed NumPy columns [row], in order of derivation
    tags     [row] tags in that order; None under `unit`, where every tag is True
    `len` and `columns` build no Python tuples.
    """

    def __init__(self, table: Table, tags: np.ndarray | None, symbols: SymbolTable):
        self._table = table
        self._symbols = symbols
        self._tags = tags
        self._columns: tuple[np.ndarray, ...] | None = None
        self._order: np.ndarray | None = None

    @property
    def columns(self) -> tuple[np.ndarray, ...]:
        if self._columns is None:
            self._columns = tuple(
                show_column(self._table.column(c), t, self._symbols) for c, t in enumerate(self._table.types)
            )
        return self._columns

    @property
    def tags(self) -> np.ndarray | None:
        return self._tags

    def __len__(self) -> int:
        return self._table.size

    def _sorted(self) -> np.ndarray:
        if self._order is None:
            keys = [ranks(c) if c.dtype == object else c for c in self.columns]
            self._order = np.lexsort(keys[::-1]) if keys else np.arange(len(self))
        return self._order

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        order = self._sorted()
        if not self.columns:
            return iter([()] * len(self))
        return zip(*(column[order].tolist() for column in self.columns))

    def items(self) -> Any:
        return _Items(self)

    def _row(self, key: Any) -> int:
        values = as_tuple(key)
        types = self._table.types
        if len(values) != len(types) or not all(fits(v, t) for v, t in zip(values, types)):
            return -1
        if any(t.family == "text" and v not in self._symbols.ids for v, t in zip(values, types)):
            return -1
        words = [np.array([word_of(v, t, self._symbols)], dtype=np.int64) for v, t in zip(values, types)]
        return int(self._table.find(words, 1)[0])

    def __contains__(self, key: Any) -> bool:
        return self._row(key) >= 0

    def __getitem__(self, key: Any) -> Any:
        row = self._row(key)
        if row < 0:
            raise KeyError(key)
        return True if self._tags is None else self._tags[row].item()

    def tag_list(self) -> list[Any]:
        """Tags in the order of iteration."""
        order = self._sorted()
        return [True] * len(self) if self._tags is None else self._tags[order].tolist()

    def __repr__(self) -> str:
        shown = []
        for i, (row, tag) in enumerate(self.items()):
            if i == 20:
                shown.append(f"... {len(self)} in all")
                break
            text = f"({', '.join(map(show_value, row))})"
            shown.append(text if self._tags is None else f"{tag:.6g}::{text}")
        return "{" + ", ".join(shown) + "}"


class _Items:
    def __init__(self, view: RelationView):
        self.view = view

    def __len__(self) -> int:
        return len(self.view)

    def __iter__(self):
        return zip(iter(self.view), self.view.tag_list())


class Database(Mapping):
    """The output relations of a run by name; `provenance` is the one it ran under."""

    def __init__(self, relations: Mapping[str, RelationView], provenance: str, hidden: Sequence[str] = ()):
        self._relations = dict(relations)
        self.provenance = provenance
        self._hidden = tuple(hidden)

    def __getitem__(self, name: str) -> RelationView:
        found = self._relations.get(name)
        if found is None:
            if name in self._hidden:
                raise BindingError(f"`{name}` is not an output of this program", hint=f"add `query {name}`")
            close = near(name, self._relations)
            raise BindingError(
                f"unknown relation `{name}`",
                hint=f"did you mean `{close}`?" if close else f"the outputs are {', '.join(self._relations)}",
            )
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._relations

    def __iter__(self) -> Iterator[str]:
        return iter(self._relations)

    def __len__(self) -> int:
        return len(self._relations)

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {view!r}" for name, view in self._relations.items())
