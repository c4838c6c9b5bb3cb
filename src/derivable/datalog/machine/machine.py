"""The machine: relations as tables, stores of rules and their kernels in one memory of words, and a driver over it.

The driver of `machine.driver` calls the kernels of all stores of some strata, round after round, and comes back with a
reason: room for rows, a store that has no kernel, a look at the limits. A handler does something about it, and the
driver is called again. A run of a stratum's recursion (`machine.recursion`) and of a whole program
(`machine.whole_program`) differ in bounds, which strata and from which round on, and in handlers.
What tags are, and when they are added up, is a merge that the machine has (`machine.merges`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.core.lazy import later
from derivable.datalog.fused.kernel_plan import BoundPlan
from derivable.datalog.fused.store_state import StoreState, argument_of
from derivable.datalog.kernels import row_sets
from derivable.datalog.machine import words as w
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.tables.index import Index
from derivable.datalog.tables.storage import Table

if TYPE_CHECKING:
    from derivable.datalog.fused import emit, emit_insert
    from derivable.datalog.machine import driver
    from derivable.datalog.machine.merges import Merge
    from derivable.device.cpu.llvm_code import Packed
else:
    emit, emit_insert = later("derivable.datalog.fused.emit"), later("derivable.datalog.fused.emit_insert")
    driver = later("derivable.datalog.machine.driver")

# How a profile names what a machine has done.
ROUTE = "kernel in the driver"


def are_compiled(kernels: Iterable[Packed]) -> bool:
    """Whether all of these kernels are compiled, some of those that are not by this call."""
    missing = [kernel for kernel in dict.fromkeys(kernels) if not (kernel.is_linked or kernel.is_there)]
    for kernel in missing[: policy().few_kernels]:
        kernel.link()
    return len(missing) <= policy().few_kernels


# Where the memory has an argument of a kernel: behind what, whose step, and how far. Others than words of the store, of
# the memory, of a table and of an index are values that the store has alone, as `argument_of` names them.
Part = tuple[str, int, int]
# The step of the table that a store writes to.
TARGET = -1

# What is done about a reason: whether the machine goes on.
Handlers = Mapping[int, Callable[[int], bool]]


class Machine:
    """Stores of some strata in one memory.

    strata    [stratum + 1, STRATUM_WORDS] int64; words: [store, STORE_WORDS]
    names     the relations of the strata, those of one after those of the one before, and then others that they read
              or that hold parts of rules; `tables` are theirs
    bases     [table] where its words begin in the memory
    layouts   [table] what kernels were bound to
    bound     the stores whose kernels are at hand
    merge     what tags are
    has_room  whether indexes have room for all rows that their tables have room for
    indexes_after  see `driver`
    """

    def __init__(
        self,
        executor: Any,
        relations: Sequence[Sequence[str]],
        stores: Sequence[tuple[Sequence[m.Store], Sequence[m.Store]]],
        merge: Merge,
        others: Sequence[str] = (),
        has_room: bool = False,
    ):
        """relations, stores: [stratum] what it computes, and by what before its recursion and in it."""
        self.executor, self.merge, self.has_room = executor, merge, has_room
        self.kernels = policy().kernels
        self.address = self.kernels.address
        self.stores = [store for once, loop in stores for store in (*once, *loop)]
        self.names = [*(name for names in relations for name in names), *others]
        self.number = {name: number for number, name in enumerate(self.names)}
        self.tables: list[Table] = [executor.tables[name] for name in self.names]
        self.bases = w.FIRST_FREE + w.TABLE_WORDS * np.arange(len(self.tables))
        self.bases_of_tables: list[int] = self.bases.tolist()
        self.addresses: list[tuple[tuple, list[int]]] = [((), []) for _ in self.tables]
        self.used = w.FIRST_FREE + w.TABLE_WORDS * len(self.tables)
        self.memory = np.zeros(self.used + 64 * len(self.stores), np.int64)
        self.layouts = [_layout(table) for table in self.tables]
        self.words = np.zeros((len(self.stores), w.STORE_WORDS), np.int64)
        self.blocks: list[Any] = [None] * len(self.stores)
        self.arrays: list[Any] = [None] * len(self.stores)
        self.bound: set[int] = set()
        self.indexes: dict[Index, int] = {}
        self.index_bases = np.zeros(0, np.int64)
        self.indexes_after = np.zeros((len(self.tables), 0), np.int64)
        self.control = np.zeros(w.CONTROL_WORDS, np.int64)
        self.strata = np.zeros((len(relations) + 1, w.STRATUM_WORDS), np.int64)
        self.strata[:, [w.BASE, w.SYMMETRIC]] = -1
        self.strata[:, w.FIRST_TABLE] = [*accumulate(map(len, relations), initial=0)]
        self.strata[:, w.FIRST_STORE] = [*accumulate((len(a) + len(b) for a, b in stores), initial=0)]
        self.strata[:-1, w.LOOP] = self.strata[1:, w.FIRST_STORE] - [len(loop) for _, loop in stores]
        drivers = [store.query.operators[0] for store in self.stores]
        reads = [self.number.get(one.relation, -1) if isinstance(one, m.Scan) else -1 for one in drivers]
        is_recent = [isinstance(one, m.Scan) and one.part == "recent" for one in drivers]
        self.words[:, w.TARGET], self.words[:, w.DRIVER] = [self.number[store.relation] for store in self.stores], reads
        self.drivers, self.activity = np.array(reads, np.int64), np.zeros((len(self.tables), 2), np.int64)
        self.readers = np.full((len(self.tables), 2), (len(self.stores), 0), np.int64)
        for number, table in enumerate(reads):
            if table >= 0 and is_recent[number]:
                self.readers[table] = min(self.readers[table, 0], number), number + 1
        merge.attach(self)

    def store_state(self, number: int) -> StoreState:
        """What the run knows of a store."""
        return self.executor.store_state(self.stores[number])

    def run(self, handlers: Handlers) -> int:
        """Have the driver go on until it ends, or a handler leaves the rest to others; returns the reason."""
        while (reason := self.merge.call(self)) != w.ENDED and handlers[reason](reason):
            pass
        return reason

    # The memory

    def allocate(self, count: int) -> int:
        """Where words begin that nobody has."""
        at, self.used = self.used, self.used + count
        if self.used > len(self.memory):
            longer = np.zeros(2 * self.used, np.int64)
            longer[: len(self.memory)] = self.memory
            self.memory = longer
        return at

    def write_table(self, number: int) -> None:
        """What kernels read of a table, as it is now."""
        table, at = self.tables[number], self.bases_of_tables[number]
        # Kernels find rows by what is written here: the form of the sets must not change later.
        table.row_set.update(table)
        if table.size >= policy().set_rows:
            table.row_set.use_prefixes(table)
        sets, log = table.row_set.prefix_sets, table.log
        if sets is None:
            arrays = log, table.row_set.slots
            words = [min(len(log), len(table.row_set.slots) // 4), len(table.row_set.slots) // 2]
        else:
            arguments = sets.find_arguments
            arrays = log, sets.count, sets.state, *arguments[2:5], *arguments[6:]
            words = [len(log), sets.units, *arguments[:2], *arguments[5:6]]
        # To look up addresses takes longer than all the rest, and few arrays are new.
        known = self.addresses[number]
        if len(known[0]) != len(arrays) or not all(map(operator.is_, known[0], arrays)):
            known = self.addresses[number] = arrays, [self.address(array) for array in arrays]
        log_at, *rest = known[1]
        if sets is None:
            words = [log_at, words[0], *rest, words[1]]
        else:
            room, end, firsts, domain, *slots = words
            count, state, base, set_slots, arena, *more = rest
            words = [log_at, room, 0, 0, end, count, state, firsts, domain, base, set_slots, arena, *slots, *more]
        memory = self.memory
        memory[at + w.LOG : at + w.LOG + len(words)] = words
        memory[at + w.SIZE] = table.size
        self.merge.write_table(self, number)

    def write_index(self, index: Index) -> None:
        """An index that grows with its table."""
        if self.has_room and len(index.following) < (room := len(index.table.log)):
            index.heads, index.rows_inserted = index.heads[:0], 0
            index.make_room(room)
        index.update()
        at, table, address = self.indexes[index], index.table, self.address
        self.memory[at : at + w.INDEX_WORDS] = [
            *(self.bases[self.number[table.name]], address(index.key_columns), len(index.key_columns)),
            *(address(index.heads), len(index.heads), address(index.following)),
            *(min(len(index.following), len(index.heads)), index.rows_inserted),
            *(table.word_type == np.int32, table.width),
        ]

    def update_index(self, index: Index) -> None:
        """Insert the rows of its table into an index. Those that the driver has inserted are not inserted again, which
        would make their chain a circle, and it knows those that are inserted here."""
        at = self.indexes.get(index)
        if at is None:
            index.update()
            return
        index.rows_inserted = max(index.rows_inserted, int(self.memory[at + w.INDEXED]))
        if index.table.size >= index.rows_inserted:
            self.write_index(index)

    def read_table(self, number: int) -> None:
        """Have a table, and its indexes, know the rows that it has now."""
        table, at = self.tables[number], self.bases_of_tables[number]
        table.size = int(self.memory[at + w.SIZE])
        for index, at in self.indexes.items():
            if index.table is table:
                index.rows_inserted = int(self.memory[at + w.INDEXED])

    def changed(self, number: int) -> None:
        """Write a table that something was done to, and bind kernels again if it has another layout."""
        self.write_table(number)
        table = self.tables[number]
        for index in self.indexes:
            if index.table is table:
                self.write_index(index)
        if (layout := _layout(table)) != self.layouts[number]:
            self.layouts[number] = layout
            for other in sorted(self.bound):
                if self.words[other, w.TARGET] == number or table in self.store_state(other).tables:
                    self.bind(other, must=True)

    # Kernels

    def bind(self, number: int, must: bool = False) -> bool:
        """Have the kernel of a store for the layouts that tables have now; whether there is one.

        must  whether it is compiled although it has not been worth that yet
        """
        store_state, words = self.store_state(number), self.words[number]
        if not must and not self.may_plan(number):
            return False
        stale = [table for table in store_state.tables if table.row_set.is_stale]
        kernel, plan = self.kernel(number), store_state.bound_plan
        words[w.ENTRY] = 0
        if kernel is None or plan is None or not (must or self.is_worth(number, kernel)):
            return False
        for _, index in plan.reads.values():
            if index is not None:
                self.update_index(index)
        self.bind_to(number, plan, kernel, self.parts(number, plan, kernel))
        self.bound.add(number)
        inserted = [table for table in stale if not table.row_set.is_stale]
        for other in sorted(self.bound - {number}) if inserted else ():
            # Their logs may be of another type now.
            if any(table in inserted for table in self.store_state(other).tables):
                self.bind(other, must=True)
        return True

    def bind_to(self, number: int, plan: BoundPlan, kernel: emit.RuleKernel, parts: Sequence[Part]) -> Sequence[int]:
        """Bind a store to its kernel; returns where the memory has the arguments of that, which are these parts."""
        words = self.words[number]
        if not words[w.PROGRESS]:
            width = self.tables[words[w.TARGET]].width
            words[w.PROGRESS] = self.allocate(emit_insert.FIRST_POSITION + kernel.num_positions + width)
        addresses = self.addresses_of(number, plan, parts)
        block = self.blocks[number] = np.array(addresses, np.int64)
        words[w.BLOCK], words[w.POSITIONS] = self.address(block), kernel.num_positions
        words[w.ENTRY] = kernel.function.address
        return addresses

    def may_plan(self, number: int) -> bool:
        """Whether a store goes through so many rows that all tables may have one log, which a kernel reads."""
        store_state = self.store_state(number)
        start, stop = store_state.driven()
        return all(store_state.seen + stop - start >= table.rows_worth_kernels for table in store_state.tables)

    def kernel(self, number: int) -> emit.RuleKernel | None:
        """The kernel of a store for the layouts that tables have now, if there may be one."""
        store_state, table = self.store_state(number), self.tables[self.words[number, w.TARGET]]
        store_state.plan()
        plan = store_state.bound_plan
        if plan is None:
            return None
        form = table.row_set.form
        kernel = plan.store_plan.insert_kernels.get(form)
        if kernel is None:
            kernel = plan.store_plan.insert_kernels[form] = self.merge.kernel(plan.plan, form)
        return kernel

    def is_worth(self, number: int, kernel: emit.RuleKernel) -> bool:
        """Whether to use a kernel now: it is compiled, or the rows that it would have run justify compiling it."""
        function: Packed = kernel.function
        if function.is_linked:
            return True
        store_state = self.store_state(number)
        function.wanted += store_state.seen - store_state.counted
        store_state.counted = store_state.seen
        start, stop = store_state.driven()
        wanted = function.wanted + stop - start
        return wanted >= policy().many_rows or (wanted >= policy().few_rows and function.is_there)

    def parts(self, number: int, plan: BoundPlan, kernel: emit.RuleKernel) -> list[Part]:
        """What the arguments of a store's kernel are parts of: the same for all stores of its form, if the machine has
        all their tables."""
        parts: list[Part] = []
        for what, step, part in kernel.parameters:
            scan = plan.store_plan.scans.get(step)
            if what == "progress":
                parts.append((what, 0, part))
            elif what in ("left", "next_round"):
                parts.append(("of memory", 0, getattr(w, what.upper())))
            elif what.startswith("target "):
                table = self.tables[self.words[number, w.TARGET]]
                parts += [(whose, TARGET, at) for whose, at in _parts(table, what.removeprefix("target "), part)]
            elif what == "word" or scan is None or scan.relation not in self.number:
                parts.append((what, step, part))
            else:
                parts += [(whose, step, at) for whose, at in self.growing(plan.reads[step], scan, what, part)]
        return parts

    def growing(
        self, read: tuple[Table, Index | None], scan: m.Scan, what: str, part: int
    ) -> Sequence[tuple[str, int]]:
        """What an argument of a step is a part of that reads a relation that grows."""
        word = {"heads": w.HEADS, "heads_size": w.NUM_HEADS, "following": w.FOLLOWING_ROWS}.get(what)
        if word is not None:
            return [("of index", word)]
        if what == "bound":
            return [("of memory", w.BOUND)]
        if what == "limit":
            what = "stable" if scan.part == "stable" and read[0].tags is None else "visible"
        elif what == "tags" and scan.part == "recent":
            what = self.merge.recent_tags
        return _parts(read[0], {"table": "hash", "table_size": "hash_slots"}.get(what, what), part)

    def addresses_of(self, number: int, plan: BoundPlan, parts: Sequence[Part]) -> list[int]:
        """Where the memory has these parts for a store."""
        begins: dict[tuple[str, int], int | None] = {}
        addresses: list[int] = []
        values: list[int] = []
        arrays = self.arrays[number] = []
        scans, executor = plan.store_plan.scans, self.executor
        bounds = {step: executor.bounds_of(scans[step]) for what, step, _ in parts if what in ("limit", "bound")}
        for whose, step, at in parts:
            if (whose, step) not in begins:
                begins[whose, step] = self.begin_of_part(number, plan, whose, step)
            begin = begins[whose, step]
            if begin is not None:
                addresses.append(begin + at)
                continue
            for value in argument_of(plan, bounds, None, whose, step, at):
                if isinstance(value, np.ndarray):
                    arrays.append(value)
                addresses.append(-1 - len(values))
                values.append(self.address(value) if isinstance(value, np.ndarray) else int(value))
        first = self.allocate(len(values))
        self.memory[first : first + len(values)] = values
        return [address if address >= 0 else first - 1 - address for address in addresses]

    def begin_of_part(self, number: int, plan: BoundPlan, whose: str, step: int) -> int | None:
        """Where the memory has the words that an argument of a store is one of; None if it is a value."""
        match whose:
            case "of memory":
                return 0
            case "progress":
                return int(self.words[number, w.PROGRESS])
            case "of table" | "of tags":
                name = self.names[self.words[number, w.TARGET]] if step == TARGET else plan.reads[step][0].name
                return self.begin_of(self.number[name], whose)
            case "of index":
                index = plan.reads[step][1]
                assert index is not None
                return self.position_of_index(index)
        return None

    def begin_of(self, number: int, whose: str) -> int:
        """Where the memory has the words of a table, or of its tags."""
        at = self.bases_of_tables[number]
        return at if whose == "of table" else int(self.memory[at + w.PARTS])

    def part_of(self, number: int, what: str, part: int = 0) -> list[int]:
        """Where the memory has a part of a table."""
        return [self.begin_of(number, whose) + at for whose, at in _parts(self.tables[number], what, part)]

    def have_parts(self, count: int) -> None:
        """Have words for scalars of tags, or factors, of all tables."""
        for at in self.bases_of_tables:
            self.memory[at + w.PARTS] = self.allocate(w.PART_WORDS * count)

    def position_of_part(self, number: int, what: int, part: int) -> int:
        """Where the memory has an address of a scalar of the tags of a table."""
        return self.begin_of(number, "of tags") + w.PART_WORDS * part + what

    def position_of_index(self, index: Index) -> int:
        """Where the memory has the words of an index that grows."""
        base = self.indexes.get(index)
        if base is None:
            base = self.indexes[index] = self.allocate(w.INDEX_WORDS)
            self.index_bases = np.append(self.index_bases, base)
            self.write_index(index)
        return base

    def begin(self) -> None:
        """Write what is known of tables and indexes that grow."""
        self.control[:] = 0
        self.control[w.ONLY_TABLE] = -1
        for number, table in enumerate(self.tables):
            table.row_set.update(table)
            self.merge.write_rows(self, number)
        for number in range(len(self.tables)):
            self.changed(number)

    def call(self, compiled: Any = None, *more: Any) -> int:
        """Have the driver go on, `run` by default; returns why it comes back."""
        compiled = driver.run if compiled is None else compiled
        return self.kernels.drive(compiled, *self.arguments(), *more)

    def arguments(self) -> tuple[np.ndarray, ...]:
        """The arrays of the driver, see there."""
        arrays = self.memory, self.words, self.bases, self.index_bases, self.control, self.strata, self.drivers
        return *arrays, self.readers, self.activity, self.indexes_after

    def make_room(self, code: int) -> bool:
        """Make room for what a store, or an index, has none; a table may leave its sets for that."""
        at = int(self.control[w.AT])
        if code == w.INDEX_FULL:
            index = list(self.indexes)[at]
            self.read_table(self.number[index.table.name])
            self.write_index(index)
            return True
        only = int(self.control[w.ONLY_TABLE])
        number = int(self.words[at, w.TARGET]) if only < 0 else only
        table = self.tables[number]
        self.read_table(number)
        # Drop references first: growing must free the old log.
        self.addresses[number] = (), []
        sets = table.row_set.prefix_sets
        if code == row_sets.LOG_FULL:
            length = len(table.log)
            if table.size == length:
                # Many small tables would come back for each doubling.
                table.grow_log(4 * length if length < policy().few else length + 1)
            if sets is None and not (table.size >= policy().set_rows and table.row_set.use_prefixes(table)):
                table.row_set.grow(table, table.size + 1)
        else:
            assert sets is not None
            block = self.words[at, w.PROGRESS] + self.words[at, w.POSITIONS]
            if self.control[w.IS_ADDING]:
                block = self.memory[self.bases_of_tables[number] + w.ADD_UP_PROGRESS]
            block += emit_insert.FIRST_POSITION
            row = [self.memory[block + c : block + c + 1] for c in range(table.width)]
            if not sets.make_room(table, code, row):
                table.row_set.use_hash(table)
        self.changed(number)
        return True


def _layout(table: Table) -> tuple:
    """What kernels that write to a table, or read it, depend on."""
    return table.word_type.char, table.row_set.form


def _parts(table: Table, what: str, part: int) -> list[tuple[str, int]]:
    """What something of a table is a part of, its words or those of its tags, and where; sets are several parts."""
    if what == "sets":
        sets = table.row_set.prefix_sets
        assert sets is not None
        return [("of table", w.SETS + k) for k in range(len(sets.find_arguments))]
    if what in ("tags", "candidate_tags", "pending"):
        return [("of tags", w.PART_WORDS * part + getattr(w, what.upper()))]
    return [("of table", getattr(w, what.upper()))]
