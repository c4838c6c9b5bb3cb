"""Kernels as LLVM's text, for `device.cpu.llvm_code` to compile.

Printed form: one function `entry(words)`, which takes all arguments as words of 64 bits, numbers and the addresses of
arrays, and writes what the kernel returns to the words behind them; kernels that it calls are functions beside it. A
packed kernel is a function `entry(memory, block)`, which finds its arguments in the words of a memory.
Registers are memory of the function, which LLVM's first pass makes registers of. A line is a vector.
"""

from __future__ import annotations

from collections.abc import Sequence

from derivable.algebra.expr.emit_llvm import Instructions, Value, constant, lane_type, register_type, scalar_type
from derivable.algebra.expr.nodes import Argument, Constant, Expr, in_order
from derivable.algebra.expr.types import FLOATS, UNSIGNED, WIDTHS, check_dtype
from derivable.core import splitmix64
from derivable.core.diagnostics import TypeMismatchError, UnsupportedError
from derivable.kernel import nodes as n
from derivable.kernel.build import substitute
from derivable.kernel.check import check
from derivable.kernel.signature import held_dtype, itemsize, memory_type

# The name of the function that takes words.
ENTRY = "entry"
# What 8 lanes hold, and what 16 lanes hold.
_FITTING = {8: ("bool", "int64", "float64"), 16: ("bool", "float32")}
_PREFETCH = "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)"
# Of a branch that nobody can guess.
_UNPREDICTABLE = "!unpredictable !0"


def emit_llvm(kernel: n.Kernel, by_row: bool = False) -> str:
    """The text of a module for a valid kernel.

    by_row  whether arrays of lines are compiled for [position], scalars in the place of lines

    Raises UnsupportedError for an operation that is none of a CPU, TypeMismatchError for lines of other lanes.
    """
    return _module(kernel, by_row, _Printer(kernel, by_row))


def emit_packed(kernel: n.Kernel) -> str:
    """The text of a module for a valid kernel with packed arguments, `int64 entry(int64, int64)` in C.

    The kernel's first two parameters are arrays of int64, `memory` and `block`. The function takes their addresses, and
    memory[block[k]] is its next parameter k: an int64, or the address of an array. It returns one int64.
    """
    return _module(kernel, False, _PackedPrinter(kernel, False))


def _module(kernel: n.Kernel, by_row: bool, printer: _Printer) -> str:
    declared: set[str] = set()
    texts = []
    for called in dict.fromkeys(_called(kernel)):
        inner = _Printer(called, by_row)
        texts.append(inner.inner())
        declared |= inner.code.declared
    texts.append(printer.entry())
    declared |= printer.code.declared
    return "\n\n".join([*texts, "\n".join(sorted(declared)), "!0 = !{}"]) + "\n"


def _called(kernel: n.Kernel) -> list[n.Kernel]:
    """The kernels that a kernel calls, those that they call before them."""
    found: list[n.Kernel] = []
    for statement in n.walk(kernel.body):
        if isinstance(statement, n.Call):
            found += [*_called(statement.kernel), statement.kernel]
    return found


class _Printer:
    """The function of one kernel."""

    # What stands behind the last statement.
    end = "ret void"

    def __init__(self, kernel: n.Kernel, by_row: bool):
        self.kernel, self.by_row = kernel, by_row
        self.lines = frozenset() if by_row else check(kernel)
        if by_row:
            check(kernel)
        elif not all(register.dtype in _FITTING.get(kernel.lanes, ()) for register in self.lines):
            wrong = next(r for r in self.lines if r.dtype not in _FITTING.get(kernel.lanes, ()))
            raise TypeMismatchError(
                f"kernel {kernel.name}: lines of {kernel.lanes} lanes do not hold {wrong.dtype}",
                hint="8 lanes hold bool, int64 and float64, 16 lanes bool and float32",
            )
        self.code = Instructions()
        # What is at the start of the function: memory of registers, and what is computed once.
        self.before = Instructions()
        self.before.name = self.code.name  # type: ignore[method-assign]
        self.before.declared = self.code.declared
        self.registers: dict[n.Register, str] = {}
        self.once: dict[tuple, str] = {}
        # (label after the innermost loop, label of its next round)
        self.loops: list[tuple[str, str]] = []
        self.result = "%result"

    # Functions

    def entry(self) -> str:
        words = "%words"
        for number, parameter in enumerate(self.kernel.parameters):
            word = self.before.let(f"getelementptr inbounds i64, ptr {words}, i64 {number}")
            if isinstance(parameter, n.Array):
                self.before.add(f"{self.address(parameter)} = load ptr, ptr {word}")
                continue
            if parameter.dtype in FLOATS:
                value = self.before.let(f"load double, ptr {word}")
                value = self.before.converted(value, "float64", parameter.dtype)
            else:
                value = self.before.let(f"load i64, ptr {word}")
                value = self.before.converted(value, "int64", parameter.dtype)
            self.before.add(f"store {scalar_type(parameter.dtype)} {value}, ptr {self.memory(parameter)}")
        self.before.add(f"{self.result} = getelementptr inbounds i64, ptr {words}, i64 {len(self.kernel.parameters)}")
        return self.function(f"define void @{ENTRY}(ptr noalias %words) nounwind")

    def inner(self) -> str:
        parameters = []
        for parameter in self.kernel.parameters:
            if isinstance(parameter, n.Array):
                parameters.append(f"ptr {self.address(parameter)}")
                continue
            kind = scalar_type(parameter.dtype)
            parameters.append(f"{kind} %given.{parameter.name}")
            self.before.add(f"store {kind} %given.{parameter.name}, ptr {self.memory(parameter)}")
        return self.function(f"define internal void @{self.kernel.name}({', '.join(parameters)}) nounwind")

    def function(self, head: str) -> str:
        self.block(self.kernel.body)
        self.code.add(self.end)
        memory = [
            f"  {address} = alloca {register_type(register.dtype, self.width(register))}"
            for register, address in self.registers.items()
        ]
        return "\n".join([f"{head} {{", "entry:", *memory, *self.before.lines, *self.code.lines, "}"])

    # Registers and values

    def width(self, register: n.Register) -> int:
        return self.kernel.lanes if register in self.lines else 0

    def address(self, array: n.Array) -> str:
        return f"%array.{array.name}"

    def memory(self, register: n.Register) -> str:
        found = self.registers.get(register)
        if found is None:
            found = self.registers[register] = f"%r.{register.name}"
        return found

    def read(self, register: n.Register) -> Value:
        lanes = self.width(register)
        return Value(self.code.let(f"load {register_type(register.dtype, lanes)}, ptr {self.memory(register)}"), lanes)

    def write(self, register: n.Register, value: str) -> None:
        self.code.add(
            f"store {register_type(register.dtype, self.width(register))} {value}, ptr {self.memory(register)}"
        )

    def values(self, exprs: Sequence[Expr]) -> list[Value]:
        arguments = [node for node in in_order(exprs) if isinstance(node, Argument)]
        return self.code.compute(exprs, {argument: self.read(argument) for argument in arguments})

    def scalar(self, value: Expr) -> str:
        return self.values((value,))[0].text

    def line(self, value: Expr) -> str:
        """A value in lines, or as it is where kernels go row by row."""
        return self.spread(self.values((value,))[0], value)

    def spread(self, value: Value, of: Expr) -> str:
        if self.by_row or value.lanes:
            return value.text
        if isinstance(of, Constant):
            return constant(of.value, of.dtype, self.kernel.lanes)
        return self.code.spread(value, of.dtype, self.kernel.lanes)

    # Arrays

    def place(self, array: n.Array, index: str, kind: str = "", is_inside: bool = True) -> str:
        """The address of a position; positions of what is read and written are inside the array."""
        kind = kind or memory_type(array.dtype)
        inside = "inbounds " if is_inside else ""
        return self.code.let(f"getelementptr {inside}{kind}, ptr {self.address(array)}, i64 {index}")

    def load(self, array: n.Array, index: str, dtype: str) -> str:
        kind = memory_type(array.dtype)
        found = self.code.let(f"load {kind}, ptr {self.place(array, index)}, align {itemsize(array.dtype)}")
        return self.from_memory(found, array.dtype, dtype)

    def from_memory(self, found: str, source: str, target: str, lanes: int = 0) -> str:
        if source == "bool":
            kind = f"<{lanes} x i8>" if lanes else "i8"
            found = self.code.mask(self.code.let(f"icmp ne {kind} {found}, zeroinitializer"), lanes)
        return self.code.converted(found, source, target, lanes)

    def to_memory(self, value: str, source: str, target: str, lanes: int = 0) -> str:
        value = self.code.converted(value, source, target, lanes)
        if target == "bool":
            before, after = (f"<{lanes} x i1>", f"<{lanes} x i8>") if lanes else ("i1", "i8")
            value = self.code.let(f"zext {before} {self.code.bits(value, lanes)} to {after}")
        return value

    def store(self, array: n.Array, index: str, value: str, dtype: str) -> None:
        value = self.to_memory(value, dtype, array.dtype)
        kind = memory_type(array.dtype)
        self.code.add(f"store {kind} {value}, ptr {self.place(array, index)}, align {itemsize(array.dtype)}")

    def line_of(self, array: n.Array, index: str) -> tuple[str, str, str]:
        """(dtype, address, type) of a line, or of a scalar in its place, in an array of lines."""
        held = held_dtype(array, self.kernel.lanes)
        kind = register_type(held, 0 if self.by_row else self.kernel.lanes)
        return held, self.place(array, index, kind), kind

    # Statements

    def block(self, block: Sequence[n.Statement]) -> None:
        for statement in block:
            self.statement(statement)

    def statement(self, statement: n.Statement) -> None:
        code, lanes = self.code, 0 if self.by_row else self.kernel.lanes
        match statement:
            case n.Assign(targets, values):
                found = self.values(values)
                for target, value, of in zip(targets, found, values):
                    self.write(target, self.spread(value, of) if target in self.lines else value.text)
            case n.Load(target, array, index):
                at = self.scalar(index)
                if not array.is_lines:
                    self.write(target, self.load(array, at, target.dtype))
                else:
                    held, address, kind = self.line_of(array, at)
                    found = code.let(f"load {kind}, ptr {address}, align {itemsize(held)}")
                    # Masks are what registers hold.
                    found = (
                        found if array.dtype == "bool" and lanes else code.converted(found, held, target.dtype, lanes)
                    )
                    self.write(target, found)
            case n.Store(array, index, value):
                at = self.scalar(index)
                if not array.is_lines:
                    self.store(array, at, self.scalar(value), value.dtype)
                else:
                    line = self.line(value)
                    held, address, kind = self.line_of(array, at)
                    line = line if array.dtype == "bool" and lanes else code.converted(line, value.dtype, held, lanes)
                    code.add(f"store {kind} {line}, ptr {address}, align {itemsize(held)}")
            case n.LoadBit(array=array, index=index) | n.SetBit(array=array, index=index):
                self.bit(statement, array, self.scalar(index))
            case n.Hash(slot, tag, words, size):
                self.hash(slot, tag, [self.scalar(word) for word in words], self.scalar(size))
            case n.LoadLine(target, array, index, backwards, count):
                self.whole(count)
                at = self.scalar(index - (lanes - 1) if backwards else index)
                kind = f"<{lanes} x {memory_type(array.dtype)}>"
                found = code.let(f"load {kind}, ptr {self.place(array, at)}, align {itemsize(array.dtype)}")
                found = self.from_memory(found, array.dtype, target.dtype, lanes)
                self.write(target, self.turned(found, target.dtype) if backwards else found)
            case n.StoreLine(array, index, value, backwards, count):
                self.whole(count)
                at = self.scalar(index - (lanes - 1) if backwards else index)
                line = self.line(value)
                line = self.turned(line, value.dtype) if backwards else line
                line = self.to_memory(line, value.dtype, array.dtype, lanes)
                kind = f"<{lanes} x {memory_type(array.dtype)}>"
                code.add(f"store {kind} {line}, ptr {self.place(array, at)}, align {itemsize(array.dtype)}")
            case n.LoadRows(target, array, index, stride, count):
                self.load_rows(target, array, self.scalar(index), self.scalar(stride), self.scalar(count))
            case n.StoreRows(array, index, stride, count, value):
                at, by, rows = self.scalar(index), self.scalar(stride), self.scalar(count)
                self.store_rows(array, at, by, rows, self.line(value), value.dtype)
            case n.LaneNumbers() | n.Gather() | n.Scatter():
                raise UnsupportedError("lines of a CPU have consecutive rows, not positions of their own")
            case n.Barrier() | n.Comment():
                pass
            case n.Call(kernel, arguments):
                given = []
                for argument in arguments:
                    if isinstance(argument, n.Array):
                        given.append(f"ptr {self.address(argument)}")
                    else:
                        given.append(f"{scalar_type(argument.dtype)} {self.scalar(argument)}")
                code.add(f"call void @{kernel.name}({', '.join(given)})")
            case n.ScanLine():
                self.scan_line(statement)
            case n.MoveUp(target, source, fill):
                moved = self.moved(self.read(source).text, self.read(fill).text, 1, register_type(target.dtype, lanes))
                self.write(target, moved)
            case n.LastLane(target, source):
                self.write(target, self.shuffled(self.read(source).text, [lanes - 1] * lanes, target.dtype))
            case n.FirstLane(target, source):
                self.write(target, self.lane_of(self.read(source).text, 0, source.dtype))
            case n.Spread(target, value):
                self.write(target, self.line(value))
            case n.Hide(target, value):
                self.write(target, code.let(_hidden(self.scalar(value))))
            case n.Choose(target, condition, if_true, if_false):
                test, (a, b) = self.scalar(condition), (self.read(one).text for one in (if_true, if_false))
                kind = scalar_type(target.dtype)
                self.write(target, code.let(f"select i1 {test}, {kind} {a}, {kind} {b}, {_UNPREDICTABLE}"))
            case n.AllLanes(target, condition):
                found = self.line(condition)
                if lanes:
                    bits = code.let(f"bitcast <{lanes} x i1> {code.bits(found, lanes)} to i{lanes}")
                    found = code.let(f"icmp eq i{lanes} {bits}, -1")
                self.write(target, found)
            case n.Prefetch(array, index):
                place = self.place(array, self.scalar(index), is_inside=False)
                code.declared.add(_PREFETCH)
                code.add(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 3, i32 1)")
            case n.For():
                self.loop(statement)
            case n.While(condition, body):
                test, inside, after = (code.name(word) for word in ("while", "round", "after"))
                code.branch(test)
                code.begin(test)
                code.choose(self.scalar(condition), inside, after)
                self.round(inside, body, after, test)
                code.begin(after)
            case n.If(condition, body, otherwise):
                then, other, after = (code.name(word) for word in ("then", "else", "after"))
                code.choose(self.scalar(condition), then, other if otherwise else after)
                for label, part in ((then, body), (other, otherwise))[: 2 if otherwise else 1]:
                    code.begin(label)
                    self.block(part)
                    code.branch(after)
                code.begin(after)
            case n.Break():
                code.branch(self.loops[-1][0])
                code.begin(code.name("dead"))
            case n.Continue():
                code.branch(self.loops[-1][1])
                code.begin(code.name("dead"))
            case n.Return(values):
                self.leave(values)
                code.begin(code.name("dead"))

    def leave(self, values: Sequence[Expr]) -> None:
        code = self.code
        for number, (value, of) in enumerate(zip(self.values(values), values)):
            word = "float64" if of.dtype in FLOATS else "uint64" if of.dtype in UNSIGNED else "int64"
            text = code.converted(value.text, of.dtype, word)
            place = code.let(f"getelementptr inbounds i64, ptr {self.result}, i64 {number}")
            code.add(f"store {scalar_type(word)} {text}, ptr {place}")
        code.add("ret void")

    def whole(self, count: Expr | None) -> None:
        if count is not None:
            raise UnsupportedError("lines of fewer rows than lanes are for GPUs: go through them row by row")

    # Loops

    def loop(self, statement: n.For) -> None:
        code, step = self.code, statement.step
        start, stop = (value.text for value in self.values((statement.start, statement.stop)))
        first = start
        if statement.down:
            first = code.let(f"sub nsw i64 {stop}, 1")
            if step > 1:
                rows = code.let(f"sub nsw i64 {first}, {start}")
                rest = code.let(f"srem i64 {rows}, {step}")
                last = code.let(f"sub nsw i64 {first}, {rest}")
                some = code.let(f"icmp slt i64 {start}, {stop}")
                first = code.let(f"select i1 {some}, i64 {last}, i64 {first}")
        # A body may assign the register; the loop goes on as it would.
        row = code.name("row")
        self.registers[Argument(-1, "int64", row)] = f"%{row}"
        code.add(f"store i64 {first}, ptr %{row}")
        test, inside, following, after = (code.name(word) for word in ("for", "round", "next", "after"))
        code.branch(test)
        code.begin(test)
        at = code.let(f"load i64, ptr %{row}")
        goes_on = f"icmp sge i64 {at}, {start}" if statement.down else f"icmp slt i64 {at}, {stop}"
        code.choose(code.let(goes_on), inside, after)
        self.round(inside, statement.body, after, following, (statement.target, at))
        code.begin(following)
        at = code.let(f"load i64, ptr %{row}")
        moved = code.let(f"add nsw i64 {at}, {-step if statement.down else step}")
        code.add(f"store i64 {moved}, ptr %{row}")
        code.branch(test)
        code.begin(after)

    def round(
        self,
        label: str,
        body: Sequence[n.Statement],
        after: str,
        following: str,
        assigned: tuple[n.Register, str] | None = None,
    ) -> None:
        self.code.begin(label)
        if assigned is not None:
            self.write(*assigned)
        self.loops.append((after, following))
        self.block(body)
        self.loops.pop()
        self.code.branch(following)

    # Lines

    def lane_of(self, line: str, lane: int, dtype: str) -> str:
        """One lane as a scalar."""
        value = self.code.let(f"extractelement {register_type(dtype, self.kernel.lanes)} {line}, i64 {lane}")
        if dtype == "bool":
            return self.code.let(f"icmp ne {lane_type(dtype, self.kernel.lanes)} {value}, 0")
        return value

    def shuffled(self, value: str, order: Sequence[int], dtype: str) -> str:
        kind = register_type(dtype, self.kernel.lanes)
        return self.code.let(f"shufflevector {kind} {value}, {kind} poison, {_order(order)}")

    def turned(self, value: str, dtype: str) -> str:
        return self.shuffled(value, range(self.kernel.lanes)[::-1], dtype)

    def moved(self, value: str, fill: str, by: int, kind: str) -> str:
        """Lane i is lane i - by; what is below comes from the lanes of `fill`."""
        lanes = self.kernel.lanes
        order = [lanes + lane if lane < by else lane - by for lane in range(lanes)]
        return self.code.let(f"shufflevector {kind} {value}, {kind} {fill}, {_order(order)}")

    def scan_line(self, statement: n.ScanLine) -> None:
        """In as many steps as the number of lanes has bits, each combining what is 1, 2, 4 ... lanes before."""
        if statement.down:
            raise UnsupportedError("lines of a CPU are scanned from the first lane to the last")
        lanes = self.kernel.lanes
        dtypes = [source.dtype for source in statement.sources]
        current = [self.read(source) for source in statement.sources]
        fills = [self.hidden(value) for value in statement.neutral]
        by = 1
        while by < lanes:
            before = [
                Value(self.moved(line.text, fill, by, register_type(dtype, lanes)), lanes)
                for line, fill, dtype in zip(current, fills, dtypes)
            ]
            # Registers that stand for the components of both operands.
            arguments: dict[Argument, Value] = {}
            replaced: dict[Argument, Expr] = {}
            for side, lines in ((statement.left, before), (statement.right, current)):
                for argument, line, dtype in zip(side, lines, dtypes):
                    register = Argument(len(arguments), check_dtype(dtype), f"operand{len(arguments)}")
                    arguments[register], replaced[argument] = line, register
            values = substitute(statement.operator, replaced)
            found = self.code.compute(values, arguments)
            current = [Value(self.spread(value, of), lanes) for value, of in zip(found, values)]
            by *= 2
        for target, value in zip(statement.targets, current):
            self.write(target, value.text)

    def hidden(self, value: Expr) -> str:
        """A constant in all lanes that the compiler does not know, so that moving lanes up before it stays a shuffle.

        Before zeros that it knows LLVM takes an instruction, vexpandpd, with which a scan of sums takes 2.8 times as
        long.
        """
        assert isinstance(value, Constant)
        key = repr(value.value), value.dtype
        if key not in self.once:
            code, lanes, dtype = self.before, self.kernel.lanes, value.dtype
            width = 512 // lanes
            number = constant(value.value, dtype)
            if dtype == "bool":
                number, dtype = ("-1" if value.value else "0"), f"int{width}"
            elif dtype in FLOATS:
                number = code.let(f"bitcast {scalar_type(dtype)} {number} to i{width}")
            number = code.let(f'call i{width} asm "", "=r,0"(i{width} {number})')
            if dtype in FLOATS:
                number = code.let(f"bitcast i{width} {number} to {scalar_type(dtype)}")
            self.once[key] = code.spread(Value(number), dtype, lanes)
        return self.once[key]

    def load_rows(self, target: n.Register, array: n.Array, index: str, stride: str, count: str) -> None:
        code = self.code
        if self.by_row:
            self.write(target, self.load(array, index, target.dtype))
            return
        lanes = self.kernel.lanes
        last = code.let(f"sub i64 {count}, 1")
        kind, line = register_type(target.dtype, lanes), "poison"
        for lane in range(lanes):
            inside = code.let(f"icmp slt i64 {lane}, {count}")
            at = code.let(f"select i1 {inside}, i64 {lane}, i64 {last}")
            value = self.load(array, self.far(index, at, stride), target.dtype)
            one = lane_type(target.dtype, lanes)
            if target.dtype == "bool":
                value = code.let(f"sext i1 {value} to {one}")
            line = code.let(f"insertelement {kind} {line}, {one} {value}, i64 {lane}")
        self.write(target, line)

    def store_rows(self, array: n.Array, index: str, stride: str, count: str, line: str, dtype: str) -> None:
        code = self.code
        if self.by_row:
            self.store(array, index, line, dtype)
            return
        lanes = self.kernel.lanes
        for lane in range(lanes):
            after = code.name("after")
            if lane:
                there = code.name("there")
                code.choose(code.let(f"icmp slt i64 {lane}, {count}"), there, after)
                code.begin(there)
            value = self.lane_of(line, lane, dtype)
            self.store(array, self.far(index, str(lane), stride), value, dtype)
            if lane:
                code.branch(after)
                code.begin(after)

    def far(self, index: str, rows: str, stride: str) -> str:
        return self.code.let(f"add i64 {index}, {self.code.let(f'mul i64 {rows}, {stride}')}")

    # Bits and hashes

    def bit(self, statement: n.LoadBit | n.SetBit, array: n.Array, index: str) -> None:
        code, width = self.code, WIDTHS[array.dtype]
        kind = f"i{width}"
        word = code.let(f"lshr i64 {index}, {width.bit_length() - 1}")
        shift = code.let(f"and i64 {index}, {width - 1}")
        if width < 64:
            shift = code.let(f"trunc i64 {shift} to {kind}")
        mask = code.let(f"shl {kind} 1, {shift}")
        place = self.place(array, word)
        found = code.let(f"load {kind}, ptr {place}, align {width // 8}")
        if isinstance(statement, n.LoadBit):
            self.write(statement.target, code.let(f"icmp ne {kind} {code.let(f'and {kind} {found}, {mask}')}, 0"))
        else:
            code.add(f"store {kind} {code.let(f'or {kind} {found}, {mask}')}, ptr {place}, align {width // 8}")

    def hash(self, slot: n.Register, tag: n.Register, words: Sequence[str], size: str) -> None:
        """Fibonacci hashing of the first word, the finalizer of splitmix64 for each further one."""
        code = self.code
        found = self.folded(code.let(f"mul i64 {words[0]}, {_signed(splitmix64.STEP)}"), 32)
        for word in words[1:]:
            found = code.let(f"xor i64 {found}, {word}")
            for shift, factor in splitmix64.ROUNDS:
                found = code.let(f"mul i64 {self.folded(found, shift)}, {_signed(factor)}")
            found = self.folded(found, splitmix64.LAST)
        mask = code.let(f"sub i64 {size}, 1")
        self.write(slot, code.let(f"and i64 {found}, {mask}"))
        self.write(tag, code.let(f"lshr i64 {found}, 32"))

    def folded(self, word: str, shift: int) -> str:
        return self.code.let(f"xor i64 {word}, {self.code.let(f'lshr i64 {word}, {shift}')}")


class _PackedPrinter(_Printer):
    """The function of a kernel with packed arguments."""

    # Every path returns before.
    end = "unreachable"

    def entry(self) -> str:
        memory, block, *rest = self.kernel.parameters
        assert isinstance(memory, n.Array)
        assert isinstance(block, n.Array)
        for array in (memory, block):
            self.before.add(f"{self.address(array)} = inttoptr i64 %{array.name} to ptr")
        for number, parameter in enumerate(rest):
            at = self.before.let(f"getelementptr inbounds i64, ptr {self.address(block)}, i64 {number}")
            at = self.before.let(f"load i64, ptr {at}")
            at = self.before.let(f"getelementptr inbounds i64, ptr {self.address(memory)}, i64 {at}")
            if isinstance(parameter, n.Array):
                self.before.add(f"{self.address(parameter)} = load ptr, ptr {at}")
            else:
                word = self.before.let(f"load i64, ptr {at}")
                self.before.add(f"store i64 {word}, ptr {self.memory(parameter)}")
        return self.function(f"define i64 @{ENTRY}(i64 %{memory.name}, i64 %{block.name}) nounwind")

    def leave(self, values: Sequence[Expr]) -> None:
        (value,) = values
        self.code.add(f"ret i64 {self.scalar(value)}")


def _order(lanes: Sequence[int]) -> str:
    return f"<{len(lanes)} x i32> <{', '.join(f'i32 {lane}' for lane in lanes)}>"


def _hidden(number: str) -> str:
    return f'call i64 asm "", "=r,0"(i64 {number})'


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word
