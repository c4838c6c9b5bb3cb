"""What a kernel means: a slow and obvious interpreter over NumPy arrays, which shares no code with the printers."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

from derivable.algebra.expr.interpret import interpret as evaluate
from derivable.algebra.expr.interpret import interpreter
from derivable.algebra.expr.nodes import Argument, Expr, arguments_of
from derivable.core import splitmix64
from derivable.kernel import nodes as n


class _Leave(Exception):
    """Control that leaves a block: "break", "continue" or "return"."""

    def __init__(self, kind: str, values: tuple = ()):
        super().__init__(kind)
        self.kind = kind
        self.values = values


def interpret(kernel: n.Kernel, *arguments: Any) -> tuple[Any, ...]:
    """Run a kernel on one argument per parameter; arrays are changed in place. Returns what the kernel returns.

    An array of lines is [position, lane] or, for scalars in the place of lines, [position]. Positions outside an
    array raise IndexError; compiled kernels do not look.
    """
    assert len(arguments) == len(kernel.parameters)
    return _Run(kernel, arguments).run()


def _hash(words: list[int]) -> int:
    """Fibonacci hashing of the first word, the finalizer of splitmix64 for each further one."""
    found = words[0] * splitmix64.STEP & splitmix64.MASK
    found ^= found >> 32
    for word in words[1:]:
        found = splitmix64.finalized(found ^ word)
    return found


@lru_cache(1 << 14)
def _evaluation(expression: Expr) -> tuple[list[Argument], Callable]:
    """The registers that an expression reads, by index, and its value for a list of these; loops ask often."""
    return arguments_of(expression), interpreter(expression)


class _Run:
    def __init__(self, kernel: n.Kernel, arguments: tuple):
        self.kernel = kernel
        self.registers: dict[n.Register, Any] = {}
        self.arrays: dict[n.Array, np.ndarray] = {}
        for parameter, argument in zip(kernel.parameters, arguments):
            if isinstance(parameter, n.Array):
                # A matrix without lines is one row after the other.
                self.arrays[parameter] = argument if parameter.is_lines else argument.reshape(-1)
            else:
                self.registers[parameter] = np.dtype(parameter.dtype).type(argument)

        # Compiled for [position], an array of lines holds scalars, and so do all registers.
        self.is_scalar = any(array.is_lines and argument.ndim == 1 for array, argument in self.arrays.items())

    def run(self) -> tuple[Any, ...]:
        try:
            self.block(self.kernel.body)
        except _Leave as leave:
            return leave.values
        return ()

    def value(self, expression: Expr) -> Any:
        if isinstance(expression, Argument):
            return self.registers[expression]
        needed, run = _evaluation(expression)
        slots: list[Any] = [0] * (needed[-1].index + 1 if needed else 0)
        for argument in needed:
            slots[argument.index] = self.registers[argument]
        return run(slots)

    def position(self, array: n.Array, index: Expr, count: int = 1, backwards: bool = False) -> Any:
        at = int(self.value(index))
        first = at - count + 1 if backwards else at
        if first < 0 or first + count > len(self.arrays[array]):
            raise IndexError(
                f"rows {first} to {first + count - 1} of {array.name}, which has {len(self.arrays[array])}"
            )
        rows = slice(first, first + count)
        return self.arrays[array][rows], -1 if backwards else 1

    def rows(self, array: n.Array, index: Expr, stride: Expr, count: Expr) -> np.ndarray:
        at, by, there = (int(self.value(number)) for number in (index, stride, count))
        found = self.arrays[array][at::by][:there]
        if at < 0 or there < 1 or len(found) < there:
            raise IndexError(f"{there} rows from {at} on by {by} of {array.name}, which has {len(self.arrays[array])}")
        return found

    def places(self, array: n.Array, places: Expr, mask: Expr) -> tuple[np.ndarray, np.ndarray]:
        """(positions, whether they are read or written), of one shape."""
        at, there = np.broadcast_arrays(self.value(places), self.value(mask))
        bad = there & ((at < 0) | (at >= len(self.arrays[array])))
        if bad.any():
            raise IndexError(f"position {at[bad][0]} of {array.name}, which has {len(self.arrays[array])}")
        return at, there

    def block(self, block: tuple[n.Statement, ...]) -> None:
        for statement in block:
            self.statement(statement)

    def statement(self, statement: n.Statement) -> None:
        registers, lanes = self.registers, self.kernel.lanes
        match statement:
            case n.Assign(targets, values):
                found = [self.value(value) for value in values]
                registers.update(zip(targets, found))
            case n.Load(target, array, index):
                rows, _ = self.position(array, index)
                registers[target] = rows[0].astype(target.dtype)
            case n.LoadBit(array=array, index=index) | n.SetBit(array=array, index=index):
                at, width = int(self.value(index)), 8 * self.arrays[array].itemsize
                if not 0 <= at < width * len(self.arrays[array]):
                    raise IndexError(f"bit {at} of {array.name}, which has {width * len(self.arrays[array])}")
                word = int(self.arrays[array][at // width])
                if isinstance(statement, n.LoadBit):
                    registers[statement.target] = np.bool_(word >> at % width & 1)
                else:
                    self.arrays[array][at // width] = word | 1 << at % width
            case n.Hash(slot, tag, words, size):
                found = _hash([int(self.value(word)) for word in words])
                registers[slot] = np.int64(found % int(self.value(size)))
                registers[tag] = np.int64(found >> 32)
            case n.LoadLine(target, array, index, backwards, count, fill):
                there = lanes if count is None else min(max(int(self.value(count)), 0), lanes)
                line = np.full(lanes, 0 if fill is None else self.value(fill), target.dtype)
                if there:
                    rows, step = self.position(array, index, there, backwards)
                    line[:there] = rows[::step]
                registers[target] = line
            case n.Store(array, index, value):
                rows, _ = self.position(array, index)
                with np.errstate(all="ignore"):
                    rows[0] = self.value(value)
            case n.StoreLine(array, index, value, backwards, count):
                there = lanes if count is None else min(max(int(self.value(count)), 0), lanes)
                if there:
                    rows, step = self.position(array, index, there, backwards)
                    with np.errstate(all="ignore"):
                        rows[::step] = self.value(value)[:there]
            case n.LoadRows(target, array, index, stride, count):
                rows = self.rows(array, index, stride, count).astype(target.dtype)
                line = rows[np.minimum(np.arange(lanes), len(rows) - 1)]
                registers[target] = line[0] if self.is_scalar else line
            case n.StoreRows(array, index, stride, count, value):
                rows = self.rows(array, index, stride, count)
                with np.errstate(all="ignore"):
                    rows[:] = np.atleast_1d(self.value(value))[: len(rows)]
            case n.LaneNumbers(target):
                registers[target] = np.arange(lanes)
            case n.Gather(target, array, places, mask, fill):
                at, there = self.places(array, places, mask)
                found = np.full(np.shape(there), self.value(fill), target.dtype)
                found[there] = self.arrays[array][at[there]]
                registers[target] = found[()]
            case n.Scatter(array, places, mask, value, adds):
                at, there = self.places(array, places, mask)
                with np.errstate(all="ignore"):
                    given = np.broadcast_to(self.value(value), there.shape)[there].astype(self.arrays[array].dtype)
                    if adds:
                        np.add.at(self.arrays[array], at[there], given)
                    else:
                        self.arrays[array][at[there]] = given
            case n.Call(kernel, arguments):
                interpret(kernel, *(self.arrays[x] if isinstance(x, n.Array) else self.value(x) for x in arguments))
            case n.ScanLine(targets, sources, left, right, values, _, down):
                step = -1 if down else 1
                found = self.scan([registers[source][::step] for source in sources], left, right, values)
                registers.update(zip(targets, [line[::step] for line in found]))
            case n.MoveUp(target, source, fill):
                registers[target] = np.concatenate([registers[fill][:1], registers[source][:-1]])
            case n.LastLane(target, source):
                registers[target] = np.full(lanes, registers[source][-1])
            case n.FirstLane(target, source):
                registers[target] = registers[source][0]
            case n.Spread(target, value):
                registers[target] = self.value(value) if self.is_scalar else np.full(lanes, self.value(value))
            case n.Hide(target, value):
                registers[target] = self.value(value)
            case n.Choose(target, condition, if_true, if_false):
                registers[target] = registers[if_true if self.value(condition) else if_false]
            case n.AllLanes(target, condition):
                registers[target] = np.bool_(np.all(self.value(condition)))
            case n.For(index, start, stop, body, down, step):
                rows = range(int(self.value(start)), int(self.value(stop)), step)
                self.loop(body, reversed(rows) if down else rows, index)
            case n.While(condition, body):
                while self.value(condition):
                    if not self.once(body):
                        break
            case n.If(condition, body, otherwise):
                self.block(body if self.value(condition) else otherwise)
            case n.Break():
                raise _Leave("break")
            case n.Continue():
                raise _Leave("continue")
            case n.Return(values):
                raise _Leave("return", tuple(self.value(value) for value in values))
            case n.Prefetch() | n.Barrier() | n.Comment():
                pass

    def loop(self, body: tuple[n.Statement, ...], rows: Any, index: n.Register) -> None:
        for row in rows:
            self.registers[index] = np.int64(row)
            if not self.once(body):
                return

    def once(self, body: tuple[n.Statement, ...]) -> bool:
        """Whether the loop goes on."""
        try:
            self.block(body)
        except _Leave as leave:
            if leave.kind == "return":
                raise
            return leave.kind != "break"
        return True

    def scan(self, lines: list[np.ndarray], left: tuple, right: tuple, values: tuple) -> list[np.ndarray]:
        """Row after row, as the operator says."""
        found = [line.copy() for line in lines]
        for lane in range(1, len(lines[0])):
            slots: list[Any] = [0] * (1 + max(argument.index for argument in (*left, *right)))
            for argument, line in zip(left, found):
                slots[argument.index] = line[lane - 1]
            for argument, line in zip(right, lines):
                slots[argument.index] = line[lane]
            for line, value in zip(found, evaluate(tuple(values), slots)):
                line[lane] = value
        return found
