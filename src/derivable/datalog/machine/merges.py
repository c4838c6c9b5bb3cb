"""What ends a round besides new rows: candidates with tags are added up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from derivable.algebra.semiring import TypedSemiring
from derivable.core.lazy import later
from derivable.datalog.machine import words as w
from derivable.datalog.machine.machine import ENDLESS, Machine
from derivable.datalog.tables.storage import Table
from derivable.datalog.tables.tag_columns import parts_of
from derivable.datalog.tags.proof_store import ProofStore
from derivable.device.cpu.memory import empty, longer
from derivable.device.cpu.pages import zero_pages

if TYPE_CHECKING:
    from derivable.datalog.fused import emit, emit_insert, emit_tags
    from derivable.datalog.machine import proof_driver
else:
    emit, emit_insert = later("derivable.datalog.fused.emit"), later("derivable.datalog.fused.emit_insert")
    emit_tags = later("derivable.datalog.fused.emit_tags")
    proof_driver = later("derivable.datalog.machine.proof_driver")

# The set of proofs that changes no product.
ONE = 1


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

    def rows(self, count: int) -> np.ndarray:
        """The words [candidate, column] of the first ones."""
        return self.words[: count * self.width].reshape(count, self.width)

    def write_tags(self, tags: Any) -> None:
        """Write the tags of the first ones."""
        for array, part in zip(self.tags, parts_of(tags)):
            array[: len(part)] = part


def kernels_of(table: Table, typed: TypedSemiring, is_certain: bool, is_ordered: bool) -> tuple[Any, Any]:
    """The kernel that adds up candidates of a table as it is, and the packed one that ends its rounds."""
    form = table.row_set.form
    add_up = emit.compiled(emit_tags.SumEmitter, typed, len(table.types), form, is_certain)
    return add_up, emit_tags.compiled_end_of_round(typed, table.stamps is not None, is_ordered)


class Sums:
    """Tags of a semiring. A row that is new in a round adds up its tags at once, one that was there before in a column
    of its own, which the end of the round adds to its tags; see `fused.emit_tags`.

    is_ordered  whether rows that change are recent in their order, not in that in which they were touched
    lists       [table] the rows that are recent, and room for those that will be, or the other way round
    touched     [table] the round in which a row was touched last; pending: its tags of this round
    candidates  [table] all the same unless tables have some at the same time
    """

    def __init__(self, machine: Machine, typed: TypedSemiring, is_ordered: bool, candidates: Sequence[Candidates]):
        tables, relations = machine.tables, machine.executor.ram.relations
        self.typed, self.is_ordered, self.candidates = typed, is_ordered, candidates
        self.is_certain = [t.name in relations and relations[t.name].is_certain for t in tables]
        machine.have_parts(len(typed.dtypes))
        machine.memory[w.ENDLESS] = ENDLESS
        self.lists = [[np.empty(0, np.int64), np.empty(0, np.int64)] for _ in tables]
        self.touched = [zero_pages(0, np.int32) for _ in tables]
        self.pending = [[np.empty(0, dtype) for dtype in typed.dtypes] for _ in tables]
        # What kernels were bound for, and where the memory has their arguments.
        self.kernels: list[tuple[Any, Any] | None] = [None] * len(tables)
        self.blocks: list[Any] = [None] * len(tables)

    def kernels_for(self, machine: Machine, number: int) -> tuple[Any, Any]:
        return kernels_of(machine.tables[number], self.typed, self.is_certain[number], self.is_ordered)

    def write_table(self, machine: Machine, number: int) -> None:
        """What kernels read and write of a table besides its rows."""
        self.bind(machine, number)
        table, at, memory = machine.tables[number], machine.places_of_tables[number], machine.memory
        room, lists, address = len(table.log), self.lists[number], machine.address
        if memory[at + w.NEXT_LIST] and memory[at + w.NEXT_LIST] == address(lists[0]):
            lists.reverse()
        if len(self.touched[number]) < room:
            self.touched[number] = longer(self.touched[number], room, len(self.touched[number]), cleared=True)
            used = memory[at + w.STOP], memory[at + w.LISTED]
            lists[:] = [longer(rows, room, min(int(count), len(rows))) for rows, count in zip(lists, used)]
            self.pending[number] = [longer(part, room, len(part)) for part in self.pending[number]]
        memory[[at + w.LIST, at + w.NEXT_LIST]] = [*map(address, lists)]
        memory[at + w.TOUCHED] = address(self.touched[number])
        if table.stamps is not None:
            memory[at + w.STAMPS] = address(table.stamps)
        candidates = self.candidates[number]
        memory[[at + w.CANDIDATE_WORDS, at + w.CANDIDATE_ROOM]] = address(candidates.words), candidates.room
        memory[at + w.IS_LISTED] = 1
        columns = ((w.TAGS, parts_of(table.tags)), (w.PENDING, self.pending[number]), (w.GIVEN, candidates.tags))
        for what, parts in columns:
            for part, array in enumerate(parts):
                memory[machine.place_of_part(number, what, part)] = address(array)

    def bind(self, machine: Machine, number: int) -> None:
        """Have the kernels of a table for the layout that it has now."""
        kernels, at = self.kernels_for(machine, number), machine.places_of_tables[number]
        if kernels == self.kernels[number]:
            return
        self.kernels[number], (add_up, end_round) = kernels, kernels
        own = int(machine.memory[at + w.ADD_UP_OWN])
        if not own:
            own = machine.allocate(emit_insert.OWN + machine.tables[number].width)
            machine.memory[at + w.ADD_UP_OWN] = own
        places: list[int] = []
        for what, _, part in add_up.parameters:
            match what:
                case "own":
                    places.append(own + part)
                case "left":
                    places.append(w.ENDLESS)
                case "next_round":
                    places.append(w.NEXT_ROUND)
                case "log":
                    places.append(at + w.CANDIDATE_WORDS)
                case "tags":
                    places.append(machine.place_of_part(number, w.GIVEN, part))
                case _:
                    places += machine.part_of(number, what.removeprefix("target "), part)
        parts = range(len(self.typed.dtypes))
        ends = [*(at + word for word in (w.LISTED, w.NEXT_LIST, w.VISIBLE, w.SIZE)), w.NEXT_ROUND]
        ends += [machine.place_of_part(number, what, part) for what in (w.TAGS, w.PENDING) for part in parts]
        ends += [at + w.TOUCHED, *([at + w.STAMPS] if machine.tables[number].stamps is not None else ())]
        blocks = self.blocks[number] = np.array(places, np.int64), np.array(ends, np.int64)
        words = add_up.function.address, machine.address(blocks[0]), end_round.address, machine.address(blocks[1])
        machine.memory[[at + w.ADD_UP, at + w.ADD_UP_BLOCK, at + w.END_ROUND, at + w.END_ROUND_BLOCK]] = words

    def grow_candidates(self, machine: Machine, number: int, room: int) -> None:
        """Have room for more candidates of a table, without those that there are."""
        self.candidates[number].grow(room, 0)
        self.write_table(machine, number)

    def write_rows(self, machine: Machine, number: int) -> None:
        """Which rows of a table are recent and visible."""
        table, at, memory = machine.tables[number], machine.places_of_tables[number], machine.memory
        recent = table.recent
        rows = np.arange(recent.start, recent.stop) if isinstance(recent, slice) else recent
        current = self.lists[number][0]
        if len(current) < len(rows):
            current = self.lists[number][0] = np.empty(len(table.log), np.int64)
        current[: len(rows)] = rows
        memory[at : at + w.LOG] = 0, len(rows), table.size, 0, table.visible_size, table.width
        memory[[at + w.NEXT_LIST, at + w.LISTED]] = 0

    def forget_rounds(self, machine: Machine) -> None:
        """Number rounds from the first one on again."""
        machine.memory[w.NEXT_ROUND] = 0
        for touched in self.touched:
            touched[:] = 0

    def recent(self, machine: Machine, number: int, is_ended: bool = False) -> np.ndarray:
        """The rows of a table that are recent, or that will be as its round has ended."""
        at, memory = machine.places_of_tables[number], machine.memory
        place, count = (w.NEXT_LIST, w.LISTED) if is_ended else (w.LIST, w.STOP)
        first, second = self.lists[number]
        rows = first if memory[at + place] == machine.address(first) else second
        return rows[: memory[at + count]].copy()


class Proofs:
    """Sets of proofs. Candidates, which have a number of factors each, wait for the end of their round, where
    `machine.proof_driver` multiplies and adds them up.

    arrays      [table] name of a word -> what the driver has of a row or of a candidate besides the table
    keeps_news  [table] whether what is new of the proofs of recent rows is read
    k           proofs of a tuple in the run at hand
    """

    def __init__(self, machine: Machine, num_factors: int, keeps_news: Sequence[bool], room: int):
        tables, relations = machine.tables, machine.executor.ram.relations
        self.num_factors, self.keeps_news, self.k = num_factors, keeps_news, 1
        self.is_certain = [t.name in relations and relations[t.name].is_certain for t in tables]
        machine.have_parts(num_factors)
        self.candidates = [Candidates(table.width, ["int64"] * num_factors, room, ONE) for table in tables]
        self.arrays: list[dict[str, np.ndarray]] = [{} for _ in tables]
        # Room for two sets and their product, and how many sets are noted.
        self.pair = np.zeros(4, np.int64)

    def write_table(self, machine: Machine, number: int) -> None:
        """What kernels read and write of a table besides its rows."""
        table, arrays, candidates = machine.tables[number], self.arrays[number], self.candidates[number]
        at, room = machine.places_of_tables[number], len(table.log)
        if len(arrays.get("list", ())) != room:
            arrays |= {name: np.zeros(room, np.int64) for name in ("list", "next_list", "last", "negated")}
            # The driver exchanges the two.
            machine.memory[[at + w.LIST, at + w.NEXT_LIST]] = [
                machine.address(arrays[name]) for name in ("list", "next_list")
            ]
            arrays["own_news"] = np.zeros(room if self.keeps_news[number] else 0, np.int64)
            if self.is_certain[number]:
                table.tags[:] = ONE
        if len(arrays.get("candidate_rows", ())) != candidates.room:
            arrays |= {name: np.zeros(candidates.room, np.int64) for name in ("following", "chained")}
            arrays["changed"] = np.zeros(candidates.room, bool)
            count = int(machine.memory[at + w.NUM_CANDIDATES])
            rows = arrays.get("candidate_rows", np.zeros(0, np.int64))
            arrays["candidate_rows"] = longer(rows, candidates.room, min(count, len(rows)))
        # What recent rows have as tags: those that are new, where more than one is kept.
        arrays["news"] = arrays["own_news"] if self.keeps_news[number] and self.k > 1 else table.tags
        lasting = "last", "negated", "news", "following", "chained", "changed", "candidate_rows"
        words: dict[str, Any] = {name: machine.address(arrays[name]) for name in lasting}
        words |= {"candidate_words": machine.address(candidates.words), "candidate_room": candidates.room}
        words |= {"stamps": 0 if table.stamps is None else machine.address(table.stamps)}
        words |= {"is_listed": 1, "is_certain": self.is_certain[number]}
        for name, word in words.items():
            machine.memory[at + getattr(w, name.upper())] = word
        machine.memory[machine.place_of_part(number, w.TAGS, 0)] = machine.address(table.tags)
        for c, array in enumerate(candidates.tags):
            machine.memory[machine.place_of_part(number, w.GIVEN, c)] = machine.address(array)

    def grow_candidates(self, machine: Machine, number: int, room: int) -> None:
        """Have room for more candidates of a table, with those that there are."""
        self.candidates[number].grow(room, int(machine.memory[machine.places_of_tables[number] + w.NUM_CANDIDATES]))
        self.write_table(machine, number)

    def forget(self) -> None:
        """Have no candidates, after a run that was left in its middle."""
        for arrays, candidates in zip(self.arrays, self.candidates):
            arrays["last"][:] = 0
            candidates.clear()

    def keep_proofs(self, machine: Machine, k: int) -> None:
        """Keep that many proofs of a tuple from now on."""
        if self.k != k:
            self.k = k
            for number in range(len(machine.tables)):
                self.write_table(machine, number)

    def call(self, machine: Machine, store: ProofStore) -> int:
        """Have the driver go on, with these sets; returns why it comes back."""
        costs, tied, literals = store.known
        settings = self.num_factors, store.k, not store.literals.denies_values, store.literals.has_triggers
        # More of the sets may have literals of choices by now.
        self.pair[3] = 0
        noted = empty(len(store.offsets) if store.literals.has_triggers else 0, np.uint8)
        sets = *store.sets, *store.made, *store.slots, store.used
        return machine.call(
            proof_driver.run_proofs, *settings, self.pair, noted, *sets, costs, tied, *literals, store.literals.triggers
        )
