"""What tags are to the machine: what kernels write, when that is added up, and what ends a round besides new rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.algebra.semiring import TypedSemiring
from derivable.core.lazy import later
from derivable.datalog.machine import words as w
from derivable.datalog.policy.costs import policy
from derivable.datalog.ram import nodes as m
from derivable.datalog.tables.storage import Table
from derivable.datalog.tables.tag_columns import parts_of
from derivable.datalog.tags.tags import SemiringTags, Untagged
from derivable.device.cpu.memory import empty, longer
from derivable.device.cpu.pages import zero_pages

if TYPE_CHECKING:
    from derivable.datalog.fused import emit, emit_insert, emit_tags, kernel_steps
    from derivable.datalog.kernels.row_sets import SetForm
    from derivable.datalog.machine import driver, proof_driver
    from derivable.datalog.machine.machine import Machine
    from derivable.datalog.tags.proof_store import ProofStore
    from derivable.device.cpu.llvm_code import Packed
else:
    emit, emit_insert = later("derivable.datalog.fused.emit"), later("derivable.datalog.fused.emit_insert")
    emit_tags = later("derivable.datalog.fused.emit_tags")
    driver, proof_driver = later("derivable.datalog.machine.driver"), later("derivable.datalog.machine.proof_driver")

# The set of proofs that changes no product.
ONE = 1
# As good as no limit.
NO_LIMIT = 1 << 62


class Candidates:
    """Room for candidates: their words [candidate * column], and their tags [candidate], an array for each scalar or
    factor.

    blank  the tags of those that are not written yet, None if these may be any
    """

    def __init__(self, width: int, dtypes: Sequence[str], room: int, blank: int | None = None):
        self.width, self.blank, self.room = width, blank, 0
        self.words, self.tags = np.empty(0, np.int64), [np.empty(0, dtype) for dtype in dtypes]
        self.grow(room, 0)

    def grow(self, room: int, count: int) -> None:
        """Have more room, with the first ones as they are."""
        self.room, self.words = room, longer(self.words, room * self.width, count * self.width)
        self.tags = [longer(part, room, count) for part in self.tags]
        self.clear(count)

    def clear(self, count: int = 0) -> None:
        """Have blank tags from a candidate on."""
        for part in self.tags if self.blank is not None else ():
            part[count:] = self.blank

    def rows(self, count: int, width: int) -> np.ndarray:
        """The words [candidate, column] of the first ones, of a table with so many columns."""
        return self.words[: count * width].reshape(count, width)

    def write_tags(self, tags: Any) -> None:
        """Write the tags of the first ones."""
        for array, part in zip(self.tags, parts_of(tags)):
            array[: len(part)] = part


class Merge:
    """No tags: rows are inserted where kernels find them, and nothing is merged.

    candidates   [table] room for facts, and for what kernels write; none where these insert and no facts are written
    certain      the relations whose rows are certain, whatever the tags of what they follow from
    recent_tags  what kernels read as the tags of recent rows
    """

    has_tags = False
    recent_tags = "tags"

    def __init__(self, room: int = 0, certain: frozenset[str] = frozenset()):
        """room  of each table for candidates at first; 0 if all have one room, or none"""
        self.room, self.certain = room, certain
        self.candidates: Sequence[Candidates] = ()

    def attach(self, machine: Machine) -> None:
        """Have what the tables of a machine need."""
        if self.room:
            self.candidates = [Candidates(table.width, (), self.room) for table in machine.tables]

    def kernel(self, plan: kernel_steps.Plan, form: SetForm | None) -> emit.RuleKernel:
        """The kernel of a plan that writes to a table with these sets."""
        return emit.compiled(emit_insert.InsertEmitter, plan, form)

    def kernels_of(self, table: Table) -> Sequence[Packed]:
        """The kernels that the driver calls for a table as it is, besides those of stores."""
        return ()

    def call(self, machine: Machine) -> int:
        """Have the driver go on; returns why it comes back."""
        return machine.call()

    def write_table(self, machine: Machine, number: int) -> None:
        """Write what the driver and kernels read of a table besides its rows."""
        if self.candidates:
            self.write_candidates(machine, number)

    def write_candidates(self, machine: Machine, number: int) -> None:
        """Write where the candidates of a table are."""
        candidates, at = self.candidates[number], machine.bases_of_tables[number]
        words = machine.address(candidates.words), candidates.room
        machine.memory[[at + w.CANDIDATE_WORDS, at + w.CANDIDATE_ROOM]] = words
        for part, array in enumerate(candidates.tags):
            machine.memory[machine.position_of_part(number, w.CANDIDATE_TAGS, part)] = machine.address(array)

    def grow_candidates(self, machine: Machine, number: int, room: int) -> None:
        """Have room for more candidates of a table, with those that there are."""
        count = int(machine.memory[machine.bases_of_tables[number] + w.NUM_CANDIDATES])
        self.candidates[number].grow(room, count)
        self.write_candidates(machine, number)

    def write_rows(self, machine: Machine, number: int) -> None:
        """Write which rows of a table are recent, stable and visible."""
        table, at, recent = machine.tables[number], machine.bases_of_tables[number], machine.tables[number].recent
        assert isinstance(recent, slice)
        start, stop, waiting = recent.start, recent.stop, int(machine.memory[at + w.WAITING])
        if waiting:
            start = max(start, stop - int(machine.memory[w.PIECE]))
            machine.memory[waiting : waiting + 2] = recent.start, start
            machine.memory[at + w.NUM_WAITING] = start > recent.start
        words = start, stop, table.size, table.stable_size, table.visible_size, table.width
        machine.memory[at : at + w.LOG] = words

    def read_rows(self, machine: Machine, number: int, is_ended: bool = False) -> None:
        """Have a table know which of its rows are recent, or will be as its round has ended, stable and visible."""
        at, table = machine.bases_of_tables[number], machine.tables[number]
        start, stop, _, _, table.visible_size = machine.memory[at : at + w.VISIBLE + 1].tolist()
        table.recent = slice(start, stop)
        if machine.memory[at + w.NUM_WAITING]:
            # Rows between those that wait are offered again, unless the machine itself goes on.
            table.visible_size = int(machine.memory[machine.memory[at + w.WAITING]])

    def begin_run(self, machine: Machine, algebra: Any) -> None:
        """Begin a run with tags of this algebra in a memory that is used again."""

    def end_run(self, is_whole: bool) -> None:
        """End a run, which may have been left in its middle."""


def merge_of(executor: Any, stores: Sequence[m.Store] | None = None) -> Merge:
    """What the tags of a run are to a machine.

    stores  those of a machine whose memory is used again; None for one stratum of one run, whose tags are no proofs
    """
    algebra, ram, room = executor.algebra, executor.ram, 0 if stores is None else policy().first_rows
    certain = frozenset(name for name, relation in ram.relations.items() if relation.is_certain)
    if isinstance(algebra, SemiringTags):
        return Sums(algebra.typed, certain, stores is not None, room)
    if stores is None or isinstance(algebra, Untagged):
        return Merge(room)
    counts = [sum(scan is not None for scan in map(m.scan_of, store.query.operators)) for store in stores]
    in_recursion = {name for stratum in ram.strata if stratum.loop for name in stratum.relations}
    with_news = {name for name in in_recursion - certain if executor.tables[name].stamps is None}
    return Proofs(max(2, *counts, 0), certain, with_news, room)


class Sums(Merge):
    """Tags of a semiring. A row that is new in a round adds up its tags at once, one that was there before in a
    second column, which the end of the round adds to its tags; see `fused.emit_tags`.

    is_ordered  whether rows that change are recent in their order, not in that in which they were touched
    lists       [table] the rows that are recent, and room for those that will be, or the other way round
    touched     [table] the round in which a row was touched last; pending: its tags of this round
    """

    has_tags = True

    def __init__(self, typed: TypedSemiring, certain: frozenset[str], is_ordered: bool, room: int = 0):
        super().__init__(room, certain)
        self.typed, self.is_ordered = typed, is_ordered

    def attach(self, machine: Machine) -> None:
        tables, dtypes = machine.tables, self.typed.dtypes
        if self.room:
            self.candidates = [Candidates(table.width, dtypes, self.room) for table in tables]
        else:
            width = max(table.width for table in tables)
            self.candidates = [Candidates(width, dtypes, policy().cache_rows)] * len(tables)
        machine.have_parts(len(dtypes))
        machine.memory[w.LEFT_WITHOUT_PAUSE] = NO_LIMIT
        self.lists = [[np.empty(0, np.int64), np.empty(0, np.int64)] for _ in tables]
        self.touched = [zero_pages(0, np.int32) for _ in tables]
        self.pending = [[np.empty(0, dtype) for dtype in dtypes] for _ in tables]
        # What tables were bound to, and where the memory has the arguments of that.
        self.kernels: list[tuple[Any, Any] | None] = [None] * len(tables)
        self.blocks: list[Any] = [None] * len(tables)

    def kernel(self, plan: kernel_steps.Plan, form: SetForm | None) -> emit.RuleKernel:
        return emit.compiled(emit_insert.CandidateEmitter, plan)

    def kernels_for(self, table: Table) -> tuple[emit.RuleKernel, Packed]:
        """The kernel that adds up the candidates of a table as it is, and the one that ends its rounds."""
        form, is_certain = table.row_set.form, table.name in self.certain
        add_up = emit.compiled(emit_tags.SumEmitter, self.typed, len(table.types), form, is_certain)
        return add_up, policy().kernels.packed_of(
            emit_tags.end_round_kernel, self.typed, table.stamps is not None, self.is_ordered
        )

    def kernels_of(self, table: Table) -> Sequence[Packed]:
        add_up, end_round = self.kernels_for(table)
        return add_up.function, end_round

    def write_table(self, machine: Machine, number: int) -> None:
        self.bind(machine, number)
        self.write_candidates(machine, number)
        table, at, memory = machine.tables[number], machine.bases_of_tables[number], machine.memory
        room, lists, address = len(table.log), self.lists[number], machine.address
        if memory[at + w.NEXT_LIST] and memory[at + w.NEXT_LIST] == address(lists[0]):
            lists.reverse()
        if len(self.touched[number]) < room:
            self.touched[number] = longer(self.touched[number], room, len(self.touched[number]), cleared=True)
            used = memory[at + w.STOP], memory[at + w.LISTED]
            lists[:] = [longer(rows, room, min(int(count), len(rows))) for rows, count in zip(lists, used)]
            self.pending[number] = [longer(part, room, len(part)) for part in self.pending[number]]
        memory[[at + w.LIST, at + w.NEXT_LIST]] = [*map(address, lists)]
        memory[at + w.TOUCHED], memory[at + w.IS_LISTED] = address(self.touched[number]), 1
        if table.stamps is not None:
            memory[at + w.STAMPS] = address(table.stamps)
        for what, parts in ((w.TAGS, parts_of(table.tags)), (w.PENDING, self.pending[number])):
            for part, array in enumerate(parts):
                memory[machine.position_of_part(number, what, part)] = address(array)

    def bind(self, machine: Machine, number: int) -> None:
        """Have the kernels of a table for the layout that it has now."""
        kernels, at = self.kernels_for(machine.tables[number]), machine.bases_of_tables[number]
        if kernels == self.kernels[number]:
            return
        self.kernels[number], (add_up, end_round) = kernels, kernels
        words = int(machine.memory[at + w.ADD_UP_PROGRESS])
        if not words:
            words = machine.allocate(emit_insert.FIRST_POSITION + machine.tables[number].width)
            machine.memory[at + w.ADD_UP_PROGRESS] = words
        arguments: list[int] = []
        for what, _, part in add_up.parameters:
            match what:
                case "progress":
                    arguments.append(words + part)
                case "left":
                    arguments.append(w.LEFT_WITHOUT_PAUSE)
                case "next_round":
                    arguments.append(w.NEXT_ROUND)
                case "log":
                    arguments.append(at + w.CANDIDATE_WORDS)
                case "tags":
                    arguments.append(machine.position_of_part(number, w.CANDIDATE_TAGS, part))
                case _:
                    arguments += machine.part_of(number, what.removeprefix("target "), part)
        parts = range(len(self.typed.dtypes))
        ends = [*(at + word for word in (w.LISTED, w.NEXT_LIST, w.VISIBLE, w.SIZE)), w.NEXT_ROUND]
        ends += [machine.position_of_part(number, what, part) for what in (w.TAGS, w.PENDING) for part in parts]
        ends += [at + w.TOUCHED, *([at + w.STAMPS] if machine.tables[number].stamps is not None else ())]
        blocks = self.blocks[number] = np.array(arguments, np.int64), np.array(ends, np.int64)
        entries = add_up.function.address, machine.address(blocks[0]), end_round.address, machine.address(blocks[1])
        machine.memory[[at + w.ADD_UP, at + w.ADD_UP_BLOCK, at + w.END_ROUND, at + w.END_ROUND_BLOCK]] = entries

    def write_rows(self, machine: Machine, number: int) -> None:
        table, at, memory = machine.tables[number], machine.bases_of_tables[number], machine.memory
        recent = table.recent
        rows = np.arange(recent.start, recent.stop) if isinstance(recent, slice) else recent
        current = self.lists[number][0]
        if len(current) < len(rows):
            current = self.lists[number][0] = np.empty(len(table.log), np.int64)
        current[: len(rows)] = rows
        memory[at : at + w.LOG] = 0, len(rows), table.size, 0, table.visible_size, table.width
        memory[[at + w.NEXT_LIST, at + w.LISTED]] = 0

    def read_rows(self, machine: Machine, number: int, is_ended: bool = False) -> None:
        at, table, memory = machine.bases_of_tables[number], machine.tables[number], machine.memory
        table.visible_size, table.round = int(memory[at + w.VISIBLE]), int(memory[w.NEXT_ROUND]) - 1
        list_word, count = (w.NEXT_LIST, w.LISTED) if is_ended else (w.LIST, w.STOP)
        first, second = self.lists[number]
        rows = first if memory[at + list_word] == machine.address(first) else second
        table.recent = rows[: memory[at + count]].copy()

    def begin_run(self, machine: Machine, algebra: Any) -> None:
        # Rounds are numbered through all runs, with 32 bits.
        if machine.memory[w.NEXT_ROUND] >= 1 << 30:
            machine.memory[w.NEXT_ROUND] = 0
            for touched in self.touched:
                touched[:] = 0


class Proofs(Merge):
    """Sets of proofs. Candidates, which have a number of factors each, wait for the end of their round, where
    `machine.proof_driver` multiplies and adds them up.

    arrays  [table] name of a word -> what the driver has of a row or of a candidate besides the table
    k       proofs of a tuple in the run at hand, and the sets of all
    """

    has_tags = True
    recent_tags = "news"

    def __init__(self, num_factors: int, certain: frozenset[str], with_news: set[str], room: int):
        """with_news  the relations of whose recent rows the new proofs are read"""
        super().__init__(room, certain)
        self.num_factors, self.with_news, self.k = num_factors, with_news, 1
        self.store: ProofStore | None = None
        # Room for two sets and their product, and how many sets are noted.
        self.pair = np.zeros(8, np.int64)

    def attach(self, machine: Machine) -> None:
        machine.have_parts(self.num_factors)
        factors = ["int64"] * self.num_factors
        self.candidates = [Candidates(table.width, factors, self.room, ONE) for table in machine.tables]
        self.arrays: list[dict[str, np.ndarray]] = [{} for _ in machine.tables]

    def kernel(self, plan: kernel_steps.Plan, form: SetForm | None) -> emit.RuleKernel:
        return emit.compiled(emit_insert.CandidateEmitter, plan)

    def write_table(self, machine: Machine, number: int) -> None:
        table, arrays, at = machine.tables[number], self.arrays[number], machine.bases_of_tables[number]
        room, memory, address = len(table.log), machine.memory, machine.address
        if len(arrays.get("list", ())) != room:
            arrays |= {name: np.zeros(room, np.int64) for name in ("list", "next_list", "last", "negated")}
            # The driver exchanges the two.
            memory[[at + w.LIST, at + w.NEXT_LIST]] = address(arrays["list"]), address(arrays["next_list"])
            memory[[at + w.LAST, at + w.NEGATED]] = address(arrays["last"]), address(arrays["negated"])
            arrays["news"] = np.zeros(room if table.name in self.with_news else 0, np.int64)
            if table.name in self.certain:
                table.tags[:] = ONE
        memory[[at + w.IS_LISTED, at + w.IS_CERTAIN]] = 1, table.name in self.certain
        memory[at + w.STAMPS] = 0 if table.stamps is None else address(table.stamps)
        memory[machine.position_of_part(number, w.TAGS, 0)] = address(table.tags)
        self.write_news(machine, number)
        self.write_candidates(machine, number)

    def write_news(self, machine: Machine, number: int) -> None:
        """Write what recent rows have as tags: those that are new, where rows have more than one proof."""
        table = machine.tables[number]
        news = self.arrays[number]["news"] if table.name in self.with_news and self.k > 1 else table.tags
        machine.memory[machine.bases_of_tables[number] + w.NEWS] = machine.address(news)

    def write_candidates(self, machine: Machine, number: int) -> None:
        super().write_candidates(machine, number)
        arrays, room, at = self.arrays[number], self.candidates[number].room, machine.bases_of_tables[number]
        if len(arrays.get("candidate_rows", ())) == room:
            return
        count = int(machine.memory[at + w.NUM_CANDIDATES])
        arrays["candidate_rows"] = longer(arrays.get("candidate_rows", np.zeros(0, np.int64)), room, count)
        arrays |= {"following": np.zeros(room, np.int64), "chained": np.zeros(room, np.int64)}
        arrays["changed"] = np.zeros(room, bool)
        for name in ("candidate_rows", "following", "chained", "changed"):
            machine.memory[at + getattr(w, name.upper())] = machine.address(arrays[name])

    def begin_run(self, machine: Machine, algebra: Any) -> None:
        self.store = algebra.store
        if self.k != algebra.store.k:
            self.k = algebra.store.k
            for number in range(len(machine.tables)):
                self.write_news(machine, number)

    def end_run(self, is_whole: bool) -> None:
        self.store = None
        for arrays, candidates in () if is_whole else zip(self.arrays, self.candidates):
            arrays["last"][:] = 0
            candidates.clear()

    def call(self, machine: Machine) -> int:
        store = self.store
        assert store is not None
        limits = store.k, not store.literals.denies_values, store.literals.has_triggers
        # More of the sets may have literals of choices by now.
        self.pair[6] = 0
        noted = empty(len(store.offsets) if store.literals.has_triggers else 0, np.uint8)
        return machine.call(
            *(proof_driver.run_proofs, self.num_factors, limits, self.pair, noted),
            *(store.sets, store.slots, store.used, store.known),
        )
