"""In which order the operators of a model are written, of one pass or of several that are under way together.

A pass does its operators in the order of the graph; but a layer and a convolution of vectors that do not depend on each
other and have sub-arrays of their own are written in turns, and what an operator needs of constants is loaded before
the one in front of it begins. Of several passes, the one goes on whose instructions so far are done first. So lanes
work on one pass while sub-arrays have another, and layers of a pass run beside the vector nodes of the one before.

A loop is a section of its own, of one iteration, which the hardware repeats. At the end of it lanes copy what the next
iteration reads to where it reads it. Passes of models with loops come one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from derivable.accelerator.lower.lowering_state import State
from derivable.accelerator.machine.layouts import View
from derivable.accelerator.operators.loops import Loop
from derivable.accelerator.operators.operators import Operator, OperatorGraph

_QUICK = ("source", "simd", "view")  # units of operators that are done before a partner begins
_BESIDE = {"gemm": "vector", "vector": "gemm"}


def write(passes: Sequence[Pass], in_flight: int) -> None:
    """Write the instructions of all passes, of which at most so many are under way."""
    arrays = _Arrays(passes[0].state.machine.sub_arrays)
    emitter = passes[0].state.emitter
    if passes[0].state.graph.loops:
        in_flight = 1  # an iteration has the instructions of no other pass
    steps = {each: each.steps(arrays) for each in passes}
    done = dict.fromkeys(passes, 0)  # when the instructions of a pass are, so far
    while steps:
        # One that waits for sub-arrays lets the next one go on; who has them never waits.
        for each in sorted(list(steps)[:in_flight], key=done.__getitem__):
            emitter.done = 0
            went_on = next(steps[each], None)
            if went_on is None:
                del steps[each]
            if went_on is not False:
                done[each] = max(done[each], emitter.done)
                break


class _Arrays:
    """Which operators have sub-arrays: at most one layer and one convolution, each with its own."""

    def __init__(self, count: int):
        self.count = count
        self.taken: dict[str, int] = {}  # unit -> sub-arrays

    def are_free(self, state: State, operator: Operator) -> bool:
        unit = state.unit_of(operator)
        if unit not in _BESIDE:
            return True
        others = self.taken.get(_BESIDE[unit], 0)
        fits = not others or others + state.arrays_of(operator) <= self.count
        return unit not in self.taken and fits

    def take(self, state: State, operator: Operator) -> None:
        if (unit := state.unit_of(operator)) in _BESIDE:
            self.taken[unit] = state.arrays_of(operator)

    def release(self, state: State, operator: Operator) -> None:
        self.taken.pop(state.unit_of(operator), None)


def _parts(graph: OperatorGraph) -> Iterator[tuple[list[str], Loop | None]]:
    """The operators between loops, and of each loop those of its first iteration; inputs before all."""
    names = [operator.name for operator in graph if operator.kind != "constant"]
    if graph.loops:
        names = [*graph.inputs, *(name for name in names if name not in graph.inputs)]
    start = 0
    for loop in graph.loops:
        at = names.index(loop.iterations[0][0])
        yield names[start:at], None
        yield list(loop.iterations[0]), loop
        start = at + sum(map(len, loop.iterations))
    yield names[start:], None


class Pass:
    """A pass under way.

    start  the coroutine of an operator: its constants are loaded when it yields first, its operands are ready when one
           of the array yields again, and then it yields while sums are under way
    store  writes what stores the outputs
    """

    def __init__(self, state: State, start: Callable[[Operator], Iterator[None]], store: Callable[[], None]):
        self.state, self._start, self._store = state, start, store
        self._parts = list(_parts(state.graph))
        self.pending: dict[str, Operator] = {}  # of the part under way
        self._steps: dict[str, Iterator[None]] = {}  # of operators that are loaded
        self._ready: set[str] = set()
        self._unread = {of.name: len(state.graph.users[of.name]) for of in state.graph if of.kind != "constant"}

    def steps(self, arrays: _Arrays) -> Iterator[bool]:
        """Write a step at a time: whether there was one, False where others have the sub-arrays."""
        for names, loop in self._parts:
            carried = {} if loop is None else self._begin(loop)
            self.pending = {name: self.state.graph[name] for name in names}
            while self.pending:
                first = next(iter(self.pending.values()))
                if self._prepare(first):
                    while not arrays.are_free(self.state, first):
                        yield False
                    arrays.take(self.state, first)
                    yield from self._run([first], arrays)
                yield True
            if loop is not None:
                self._repeat(loop, carried)
        self._store()
        yield True

    def _begin(self, loop: Loop) -> dict[int, View]:
        """Begin the iteration of a loop: where it reads what the iteration before gives, by the index in that one."""
        state, graph = self.state, self.state.graph
        first, last = loop.iterations[0], loop.iterations[-1]
        state.enter(graph[first[0]])
        carried = {index: state.carry(name) for index, name in loop.before.items()}
        for name in loop.before.values():
            self._unread[name] += 1  # it stays until the loop is done
        for index, name in enumerate(first):
            readers = sum(user in first for user in graph.users[name])
            self._unread[name] = readers + (index in carried or self._is_read_after(last[index], last))
        if state.emitter.written:
            state.emitter.close()
        return carried

    def _is_read_after(self, name: str, last: Sequence[str]) -> bool:
        return name in self.state.graph.outputs or any(user not in last for user in self.state.graph.users[name])

    def _repeat(self, loop: Loop, carried: Mapping[int, View]) -> None:
        """End the iteration: what the next one reads goes where it reads it; names are those of the last one then."""
        state, graph = self.state, self.state.graph
        first, last = loop.iterations[0], loop.iterations[-1]
        state.enter(graph[first[-1]])
        state.hand_on([(state.values[first[index]].view, to) for index, to in carried.items()])
        nodes = tuple(dict(zip(first, names)) for names in loop.iterations)
        state.emitter.close(loop.times, nodes)
        state.done([])
        for names in loop.iterations[1:]:
            for name in names:
                state.done(self._read_last(each for each in graph[name].inputs if each not in loop.classes))
        state.done(list(loop.before.values()))
        for name, final in zip(first, last):
            if self._is_read_after(final, last):
                self._unread[final] = sum(user not in last for user in graph.users[final])
                state.rename(name, final)
            else:
                state.done([name])

    def _run(self, active: list[Operator], arrays: _Arrays) -> Iterator[bool]:
        while active:
            if len(active) == 1:
                for partner in self._partner(active[0], arrays):
                    arrays.take(self.state, partner)
                    active.append(partner)
            following = next((later for later in self.pending.values() if later not in active), None)
            if following is not None and self._has_room(following):
                self._load(following)
            left = [operator for operator in active if self._advance(operator)]
            for operator in active:
                if operator not in left:
                    arrays.release(self.state, operator)
            active = left
            if active:
                yield True

    def _load(self, operator: Operator) -> None:
        if operator.name not in self._steps:
            self.state.enter(operator)
            self._steps[operator.name] = self._start(operator)
            next(self._steps[operator.name], None)

    def _prepare(self, operator: Operator) -> bool:
        """Write what makes the operands of an operator of the array ready; False if nothing is left to do then."""
        self._load(operator)
        if operator.unit not in _BESIDE or operator.name in self._ready:
            return True
        self._ready.add(operator.name)
        return self._advance(operator)

    def _has_room(self, operator: Operator) -> bool:
        """Whether its constants leave at least as much of the cache as they take, by a rough count."""
        state = self.state
        taken = sum(state.graph.constants[name].size for name in operator.inputs if state.is_constant(name))
        return 3 * taken <= state.cache.size - sum(state.cache.used.values())

    def _advance(self, operator: Operator) -> bool:
        """Do a step of an operator; False if it was the last."""
        self.state.enter(operator)
        if next(self._steps[operator.name], self) is not self:
            return True
        del self.pending[operator.name]
        last = self._read_last(operator.inputs)
        self.state.done([*last, *([operator.name] if self._is_unread(operator.name) else [])])
        return False

    def _read_last(self, names: Iterable[str]) -> list[str]:
        """Count that an operator has read these operands: those of them that no other will read."""
        operands = [name for name in dict.fromkeys(names) if name in self._unread]
        for name in operands:
            self._unread[name] -= 1
        return [name for name in operands if self._is_unread(name)]

    def _is_unread(self, name: str) -> bool:
        return not self._unread[name] and name not in self.state.graph.outputs

    def _partner(self, operator: Operator, arrays: _Arrays) -> list[Operator]:
        """A convolution of vectors that can run beside a layer, or the other way round; what it needs is done."""
        other = _BESIDE.get(self.state.unit_of(operator))
        for candidate in list(self.pending.values()) if other else ():
            if self.state.unit_of(candidate) != other or not arrays.are_free(self.state, candidate):
                continue
            needed = self._needed(candidate)
            if needed is not None:
                for before in [listed for name, listed in self.pending.items() if name in needed]:
                    self._load(before)
                    while self._advance(before):
                        pass
                # A binding may turn out to be done as a layer.
                if self._prepare(candidate) and self.state.unit_of(candidate) == other:
                    return [candidate]
        return []

    def _needed(self, operator: Operator) -> set[str] | None:
        """What an operator depends on and is not done; None where not all of that is done before a partner begins."""
        found: set[str] = set()
        waiting = [operator]
        while waiting:
            for name in waiting.pop().inputs:
                if name in found or name not in self.pending:
                    continue
                before = self.pending[name]
                if before.unit not in _QUICK:
                    return None
                found.add(name)
                waiting.append(before)
        return found
