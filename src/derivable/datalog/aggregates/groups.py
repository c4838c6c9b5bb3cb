"""The rows of an aggregate, group by group, and the results for them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from derivable.core.diagnostics import DerivableError, Span, UnsupportedError, Written, warn
from derivable.core.progress import NEVER, Deadline
from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.aggregates.record import AGGREGATES
from derivable.datalog.kernels import relations as kernels
from derivable.datalog.tables.storage import Table
from derivable.datalog.tables.tag_columns import concatenate
from derivable.datalog.tags.choice_facts import Derived
from derivable.datalog.tags.random_facts import RandomFacts
from derivable.datalog.tags.tags import ColumnTags, GraphTags, Untagged
from derivable.datalog.values.symbols import SymbolTable
from derivable.datalog.values.values import ValueType, numbers_of, show_column, sort_keys, words_of_numbers
from derivable.device.cpu.memory import empty
from derivable.parallel.order import order_of, runs_of

Result = tuple[list[np.ndarray], int, Any]


@dataclass(frozen=True)
class Context(Written):
    """What an aggregate needs of the run: its tags, strings, random facts and limits, and the program for messages.

    said  the aggregates that have warned, once for each program
    """

    mode: Untagged | ColumnTags | GraphTags
    symbols: SymbolTable
    random: RandomFacts
    deadline: Deadline = NEVER
    source: str = "<program>"
    text: str = ""
    said: set[Span] = field(default_factory=set)


def run_aggregate(
    rule: AggregateRule, types: tuple[ValueType, ...], body: Table, groups: Table | None, context: Context
) -> Result:
    """Columns [group..., result...], number and tags of the aggregate's rows; `types` are those of its relation."""
    return Groups(rule, types, body, groups, context).run()


def differs(keys: Sequence[np.ndarray], rows: np.ndarray) -> np.ndarray:
    """[row - 1] whether a row has another key than the row before it."""
    is_new = np.zeros(max(len(rows) - 1, 0), dtype=bool)
    for key in keys:
        is_new |= key[rows[1:]] != key[rows[:-1]]
    return is_new


class Groups:
    """The rows of an aggregate, and the results so far.

    number  [row] the group of each row of the body; rows whose group is not asked for have the number of groups
    keys    columns [group]; a group may have no rows (`sizes`)

    Columns that are `ordered` have the rows group by group, within a group by their values, then by their arguments.
    """

    def __init__(self, rule, types, body: Table, groups: Table | None, context: Context):
        self.rule, self.types, self.body, self.groups, self.context = rule, types, body, groups, context
        self.mode: Any = context.mode
        self.symbols = context.symbols
        self.record = AGGREGATES[rule.operator]
        self.settings = self.record.settings(rule.parameters)
        self.has_tags = not isinstance(context.mode, Untagged)
        self.num_rows = body.size
        self.group_tags: Any = None
        self.row_tags: Any = self._loaded(body) if self.has_tags else None
        # Where the groups begin, if each is a run of rows.
        self.runs: np.ndarray | None = None
        self.row_groups, self.keys, self.num_groups = self._numbered()
        # Chosen where all groups are.
        self.everything = np.arange(self.num_groups)
        self.results: list[tuple[np.ndarray, list[np.ndarray], Any]] = []

    def run(self) -> Result:
        replacement = self.mode.aggregate(self.rule.operator) if isinstance(self.mode, ColumnTags) else None
        if replacement is not None and not self.rule.discrete:
            self._call_user(replacement)
            return self._finished()
        uncertain = np.empty(0, np.int64)
        if self.has_tags and not self.rule.discrete:
            marked = np.zeros(self.num_groups + 1, dtype=bool)
            marked[self.number[~self.is_certain]] = True
            uncertain = np.flatnonzero(marked[:-1])
            certain = np.flatnonzero(~marked[:-1])
        else:
            certain = self.everything
        self.record.certain(self, certain)
        if len(uncertain):
            self.record.uncertain(self, uncertain)
        return self._finished()

    def _call_user(self, function: Callable[[Any], Any]) -> None:
        """The results of a function that takes the rows of each group, pairs (tag, tuple), and returns such pairs."""
        chosen = self.existing(self.everything)
        rows, offsets = self.segments(chosen)
        columns = [show_column(words[rows], t, self.symbols) for words, t in zip(self.value_words, self.value_types)]
        tuples = list(zip(*[column.tolist() for column in columns])) if columns else [()] * len(rows)
        for index, group in enumerate(chosen.tolist()):
            part = range(int(offsets[index]), int(offsets[index + 1]))
            results = function([(int(self.row_tags[rows[i]]), tuples[i]) for i in part])
            tags = np.array([tag for tag, _ in results], np.int64)
            owner = np.full(len(results), group)
            if "values" in self.record.returns:
                where = {tuples[i]: rows[i] for i in part}
                self.emit(owner, self.words_of(np.array([where[values] for _, values in results], np.int64)), tags)
            else:
                self.emit(owner, [np.array([int(value) for _, value in results], np.int64)], tags)

    def say(self, message: str, hint: str) -> None:
        """Give a warning that points to the aggregate, if it is the first one."""
        span, context = self.rule.span, self.context
        if span not in context.said:
            context.said.add(span)
            warn(message, hint=hint, source=context.source, text=context.text, span=span)

    def error(self, kind: type[DerivableError], message: str, hint: str | None = None) -> NoReturn:
        self.context.error(kind, message, self.rule.span, hint)

    # Groups

    def _loaded(self, table: Table) -> Any:
        loaded = self.mode.load(table, slice(0, table.size))
        return loaded[0] if isinstance(self.mode, GraphTags) else loaded

    def _numbered(self) -> tuple[np.ndarray | None, list[np.ndarray], int]:
        body, width = self.body, self.rule.num_group
        if width and body.size and self.groups is None:
            self.runs = runs_of(lambda rows: [body.column(c, rows) for c in range(width)], body.size)
            if self.runs is not None:
                return None, [body.column(c, self.runs) for c in range(width)], len(self.runs)
        if not width and body.size and self.groups is None:
            # All rows are one run.
            self.runs = np.zeros(1, np.int64)
            return None, [], 1
        columns = [body.column(c) for c in range(width)]
        if self.groups is not None:
            self.groups.row_set.use_hash(self.groups)
            count = self.groups.size
            keys = [self.groups.column(c) for c in range(width)]
            if self.has_tags:
                self.group_tags = self._loaded(self.groups)
            numbers = self.groups.find(columns, body.size)
            return np.where(numbers < 0, count, numbers), keys, count
        if not width:
            return np.zeros(0, np.int64), [], 1
        lows = [int(column.min(initial=0)) for column in columns]
        sizes = [int(column.max(initial=0)) - low + 1 for column, low in zip(columns, lows)]
        product = 1
        for size in sizes:
            product *= size
        if product <= 4 * body.size + 1024:
            # The key itself is the number; numbers that no row has are groups without rows.
            number = columns[0] - lows[0]
            for column, low, size in zip(columns[1:], lows[1:], sizes[1:]):
                number = number * size + (column - low)
            keys, rest = [], np.arange(product)
            for low, size in zip(lows[::-1], sizes[::-1]):
                keys.append(rest % size + low)
                rest = rest // size
            return number, keys[::-1], product
        seen = Table("groups", body.types[:width])
        seen.row_set.use_hash(seen)
        number = seen.insert(columns, body.size)
        return number, [seen.column(c) for c in range(width)], seen.size

    @cached_property
    def number(self) -> np.ndarray:
        return np.repeat(self.everything, self.sizes) if self.row_groups is None else self.row_groups

    @property
    def keeps_empty(self) -> bool:
        return self.groups is not None or self.rule.num_group == 0

    @cached_property
    def sizes(self) -> np.ndarray:
        """[group] how many rows."""
        if self.runs is not None:
            sizes = empty(self.num_groups, np.int64)
            np.subtract(self.runs[1:], self.runs[:-1], out=sizes[:-1])
            sizes[-1] = self.num_rows - self.runs[-1]
            return sizes
        return np.bincount(self.number, minlength=self.num_groups + 1)[:-1]

    def existing(self, chosen: np.ndarray, with_empty: bool = True) -> np.ndarray:
        """Those of the chosen groups that have rows, or are there without any."""
        if self.runs is not None or (with_empty and self.keeps_empty):
            return chosen
        if len(chosen) == self.num_groups:
            return np.flatnonzero(self.sizes)
        return chosen[self.sizes[chosen] > 0]

    def rows_of(self, chosen: np.ndarray) -> np.ndarray | slice:
        """The rows of the body that belong to the chosen groups."""
        wanted = self._wanted(chosen)
        return slice(None) if wanted is None else np.flatnonzero(wanted[self.number])

    def of_chosen(self, rows: np.ndarray, chosen: np.ndarray) -> np.ndarray:
        """Those of these rows of the body that belong to the chosen groups, in their order."""
        wanted = self._wanted(chosen)
        return rows if wanted is None else rows[wanted[self.number[rows]]]

    def segments(self, chosen: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(rows, offsets [chosen group + 1]) of the body, in order of their values."""
        return self.of_chosen(self.order, chosen), np.concatenate([[0], np.cumsum(self.sizes[chosen])])

    def _wanted(self, chosen: np.ndarray) -> np.ndarray | None:
        """Mask [number] of the chosen groups; None if every row is in one of them."""
        if len(chosen) == self.num_groups and self.groups is None:
            return None
        wanted = np.zeros(self.num_groups + 1, dtype=bool)
        wanted[chosen] = True
        return wanted

    # Columns

    @cached_property
    def value_types(self) -> tuple[ValueType, ...]:
        return self.body.types[self.rule.num_group + self.rule.num_arguments :]

    @cached_property
    def argument_types(self) -> tuple[ValueType, ...]:
        return self.body.types[self.rule.num_group :][: self.rule.num_arguments]

    @cached_property
    def value_words(self) -> list[np.ndarray]:
        first = self.rule.num_group + self.rule.num_arguments
        return [self.body.column(first + i) for i in range(self.rule.num_values)]

    @cached_property
    def argument_words(self) -> list[np.ndarray]:
        return [self.body.column(self.rule.num_group + i) for i in range(self.rule.num_arguments)]

    @cached_property
    def row_values(self) -> list[np.ndarray]:
        """[variable] typed values, in the order of the body."""
        return [numbers_of(words, t, self.symbols) for words, t in zip(self.value_words, self.value_types)]

    @cached_property
    def value_keys(self) -> list[np.ndarray]:
        return [self.sort_key(words, t) for words, t in zip(self.value_words, self.value_types)]

    @cached_property
    def argument_keys(self) -> list[np.ndarray]:
        return [self.sort_key(words, t) for words, t in zip(self.argument_words, self.argument_types)]

    def sort_key(self, words: np.ndarray, t: ValueType) -> np.ndarray:
        """Integers in the order of the values."""
        return sort_keys(words, t, self.symbols)

    # Order

    @cached_property
    def order(self) -> np.ndarray:
        """Rows of the body group by group, by values, then by arguments."""
        return self.sorted([self.number, *self.value_keys, *self.argument_keys])

    def sorted(self, keys: Sequence[np.ndarray]) -> np.ndarray:
        """Rows of the body in lexicographic order of columns, the first counting most."""
        if not keys:
            return np.arange(self.num_rows)
        order = order_of(keys)
        return np.arange(self.num_rows)[order] if isinstance(order, slice) else order

    def by_group(self, rows: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
        """(rows, offsets [group + 1]): the rows, None for all, sorted stably by group; a counting sort.

        Rows of no group come last, behind the offsets.
        """
        number = np.ascontiguousarray(self.number if rows is None else self.number[rows])
        offsets, rows_by_group = empty(self.num_groups + 2, np.int64), empty(len(number), np.int64)
        kernels.dense_offsets(number, 0, offsets)
        kernels.dense_rows(number, 0, offsets, rows_by_group, number[:0])
        return rows_by_group if rows is None else rows[rows_by_group], offsets[:-1]

    @cached_property
    def starts(self) -> np.ndarray:
        """[group + 1] where the rows of each group begin, in order."""
        return np.concatenate([[0], np.cumsum(self.sizes)])

    @cached_property
    def values(self) -> list[np.ndarray]:
        """[variable] typed values, ordered."""
        return [column[self.order] for column in self.row_values]

    # Tags

    @cached_property
    def is_certain(self) -> np.ndarray:
        """[row] whether it is there in every world."""
        if not self.has_tags or self.rule.discrete:
            return np.ones(self.num_rows, dtype=bool)
        return self.mode.is_one(self.row_tags)

    def tags_of(self, rows: np.ndarray | slice) -> Any:
        """The tags of rows of the body, None without tags or if they are ignored."""
        return self.row_tags[rows] if self.has_tags and not self.rule.discrete else None

    @cached_property
    def weights(self) -> np.ndarray:
        """[row] float64, what the tag of each row of the body weighs: 1 for certain rows.

        Raises UnsupportedError where weights are not known.
        """
        weights = np.ones(self.num_rows)
        if self.has_tags:
            some = np.flatnonzero(~self.mode.is_one(self.row_tags))
            if len(some):
                try:
                    weights[some] = self.mode.weights(self.row_tags[some])
                except UnsupportedError as error:
                    self.error(
                        UnsupportedError, f"`{self.rule.operator}` goes by weights, but {error.message}", error.hint
                    )
        return weights

    def weights_of(self, chosen: np.ndarray) -> np.ndarray:
        """[row] of the body; only those of the chosen groups count.

        Of groups whose rows are all certain the weights are known at all times.
        """
        return np.ones(self.num_rows) if self._are_certain(chosen) else self.weights

    def _are_certain(self, chosen: np.ndarray) -> bool:
        return bool(self.is_certain[self.rows_of(chosen)].all())

    def derived(self, chosen: np.ndarray) -> list[Derived] | None:
        """Where probabilities are known only later, the random facts that will follow from them; else None."""
        mode = self.mode
        if not isinstance(mode, GraphTags) or mode.weigh is not None or self.rule.discrete:
            return None
        return None if self._are_certain(chosen) else mode.derived

    # Results

    def words_of(self, rows: np.ndarray | slice) -> list[np.ndarray]:
        """The columns of a result that are the arguments and variables of rows of the body."""
        columns = {"arguments": self.argument_words, "values": self.value_words}
        return [words[rows] for word in self.record.returns for words in columns.get(word, ())]

    def emit(self, group: np.ndarray, results: list[np.ndarray], tags: Any) -> None:
        """Results [row] of groups [row], words; tags None if they are certain."""
        if len(group):
            self.results.append((group, results, tags))

    def emit_rows(self, rows: np.ndarray) -> None:
        """Rows of the body as they are, under their tags."""
        self.emit(self.number[rows], self.words_of(rows), self.tags_of(rows))

    def emit_values(self, group: np.ndarray, values: np.ndarray, tags: Any) -> None:
        """Results of one typed column; NaN is none."""
        t = self.types[-1]
        if t.family == "float":
            fine = ~np.isnan(values)
            if not fine.all():
                group, values, tags = group[fine], values[fine], None if tags is None else tags[fine]
        self.emit(group, [words_of_numbers(values, t, self.symbols)], tags)

    def _finished(self) -> Result:
        mode: Any = self.mode
        if not self.results:
            none = [np.empty(0, dtype=np.int64) for _ in self.types]
            return none, 0, (mode.one(0) if self.has_tags else None)
        parts = [results for _, results, _ in self.results]
        if len(parts) == 1 and self.results[0][0] is self.everything:
            group, columns = self.everything, [*self.keys, *parts[0]]
        else:
            group = np.concatenate([g for g, _, _ in self.results])
            columns = [key[group] for key in self.keys]
            columns += [np.concatenate(results) for results in zip(*parts)]
        columns = [column.astype(np.int64, copy=False) for column in columns]
        tags = None
        if self.has_tags:
            tags = concatenate([mode.one(len(g)) if t is None else t for g, _, t in self.results])
            if self.group_tags is not None:
                tags = mode.times(tags, self.group_tags[group])
            keep = ~mode.is_zero(tags)
            if not keep.all():
                columns, group, tags = [c[keep] for c in columns], group[keep], tags[keep]
        return columns, len(group), tags
