"""Expressions as instructions of LLVM, on scalars and on lines: vectors of as many rows as a kernel has lanes.

An operation is one instruction, the call of a function, or an expression of simpler operations. Integers wrap around,
and no flag lets LLVM assume anything of numbers, so the values are those of the table of operations; only a sum of
lines with a product in it is one fused operation.

Truth values of lines are masks, integers as wide as the lanes of which all bits are set or none: as single bits they
would be moved back and forth for each that comes from memory.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from derivable.algebra.expr.nodes import Apply, Argument, Constant, Expr, applied, in_order
from derivable.algebra.expr.types import FLOATS, INTEGERS, UNSIGNED, WIDTHS
from derivable.core.diagnostics import UnsupportedError


class Value(NamedTuple):
    """An operand of LLVM; lanes is 0 for a scalar."""

    text: str
    lanes: int = 0


# Operation -> its instruction for floats, and for integers and truth values; {T} is the type, {s} the prefix "s" or "u"
# of comparisons with and without sign. What is missing here is in one of the tables below.
_INSTRUCTIONS: dict[str, tuple[str | None, str | None]] = {
    "add": ("fadd {T} {0}, {1}", "add {T} {0}, {1}"),
    "subtract": ("fsub {T} {0}, {1}", "sub {T} {0}, {1}"),
    "multiply": ("fmul {T} {0}, {1}", "mul {T} {0}, {1}"),
    "divide": ("fdiv {T} {0}, {1}", None),
    "negate": ("fneg {T} {0}", "sub {T} zeroinitializer, {0}"),
    "truncate_remainder": ("frem {T} {0}, {1}", None),
    "less": ("fcmp olt {T} {0}, {1}", "icmp {s}lt {T} {0}, {1}"),
    "less_equal": ("fcmp ole {T} {0}, {1}", "icmp {s}le {T} {0}, {1}"),
    "equal": ("fcmp oeq {T} {0}, {1}", "icmp eq {T} {0}, {1}"),
    "not_equal": ("fcmp une {T} {0}, {1}", "icmp ne {T} {0}, {1}"),
    "logical_not": (None, "xor {T} {0}, {ones}"),
    "logical_and": (None, "and {T} {0}, {1}"),
    "logical_or": (None, "or {T} {0}, {1}"),
    "logical_xor": (None, "xor {T} {0}, {1}"),
    "bitwise_and": (None, "and {T} {0}, {1}"),
    "bitwise_or": (None, "or {T} {0}, {1}"),
    "bitwise_xor": (None, "xor {T} {0}, {1}"),
    "bitwise_not": (None, "xor {T} {0}, {ones}"),
}
_COMPARISONS = ("less", "less_equal", "equal", "not_equal")
# Operation on floats -> the function of LLVM that takes scalars and vectors.
_INTRINSICS = {
    **{name: name for name in ("floor", "ceil", "sqrt", "exp", "log", "sin", "cos")},
    "abs": "fabs",
}
# Operation on floats -> the function of the C library, on scalars.
_LIBRARY = ("expm1", "log1p", "tanh")


def _number(value: Any, like: Expr) -> Constant:
    return Constant(value, like.dtype)


def _where(condition: Expr, a: Any, b: Any) -> Expr:
    return applied("where", condition, a, b)


def _or(a: Expr, b: Expr) -> Expr:
    return applied("logical_or", a, b)


def _and(a: Expr, b: Expr) -> Expr:
    return applied("logical_and", a, b)


def _same(a: Expr, b: Any) -> Expr:
    return applied("equal", a, b)


def _differs(a: Expr, b: Any) -> Expr:
    return applied("not_equal", a, b)


def _extremum(node: Expr, a: Expr, b: Expr) -> Expr:
    first = a <= b if node.operation == "minimum" else b <= a  # type: ignore[attr-defined]
    if node.dtype in FLOATS:
        first = _or(first, _differs(a, a))
    return _where(first, a, b)


def _sign(node: Expr, a: Expr) -> Expr:
    # NaN stays what it is, and minus zero becomes zero.
    zero = a + 0 if node.dtype in FLOATS else a
    rest = _where(a < 0, _number(-1, node), zero) if node.dtype not in UNSIGNED else a
    return _where(applied("less", 0, a), _number(1, node), rest)


def _signs_differ(remainder: Expr, divisor: Expr) -> Expr:
    return _and(_differs(remainder, 0), applied("logical_xor", remainder < 0, divisor < 0))


def _remainder(node: Expr, a: Expr, b: Expr) -> Expr:
    rest = applied("truncate_remainder", a, b)
    if node.dtype in UNSIGNED:
        return rest
    found = _where(_signs_differ(rest, b), rest + b, rest)
    if node.dtype in INTEGERS:
        return found
    # A zero has the sign of the divisor.
    zero = _where(b < 0, _number(-0.0, node), _number(0.0, node))
    return _where(_same(b, 0), _number(float("nan"), node), _where(_same(rest, 0), zero, found))


def _floor_divide(node: Expr, a: Expr, b: Expr) -> Expr:
    """As in NumPy: of floats the quotient of what the remainder leaves, rounded to the nearest integer."""
    if node.dtype in UNSIGNED:
        return applied("truncate_divide", a, b)
    rest = applied("truncate_remainder", a, b)
    differ = _signs_differ(rest, b)
    if node.dtype in INTEGERS:
        quotient = applied("truncate_divide", a, b)
        return _where(differ, quotient - 1, quotient)
    quotient = (a - rest) / b
    quotient = _where(differ, quotient - 1, quotient)
    whole = applied("floor", quotient)
    whole = _where(_number(0.5, node) < quotient - whole, whole + 1, whole)
    # A zero has the sign of the quotient.
    return _where(_same(b, 0), a / b, _where(_same(quotient, 0), a / b * 0, whole))


def _power(node: Expr, a: Expr, b: Expr) -> Expr:
    """The exponents that LLVM would replace where it knows them are replaced everywhere, see the table."""
    root = _where(_same(a, -float("inf")), _number(float("inf"), node), abs(applied("sqrt", a)))
    # Of a base that it knows it would make exp2, with other roundings.
    found = Apply("power_of_library", (_where(_differs(b, 0), a, b), b), node.dtype)
    found = _where(_same(b, 0.5), root, found)
    return _where(_same(b, 2), a * a, _where(_same(b, -1), 1 / a, found))


def _log1mexp(node: Expr, a: Expr) -> Expr:
    near = applied("log", -applied("expm1", a))
    return _where(_number(-0.6931471805599453, node) < a, near, applied("log1p", -applied("exp", a)))


def _logaddexp(node: Expr, a: Expr, b: Expr) -> Expr:
    larger, smaller = _where(b < a, a, b), _where(b < a, b, a)
    found = larger + applied("log1p", applied("exp", smaller - larger))
    return _where(_same(a, b), a + _number(0.6931471805599453, node), found)


def _exp_of_difference(node: Expr, a: Expr, b: Expr) -> Expr:
    return _where(_same(a, b), _number(1, node), applied("exp", a - b))


def _sigmoid(node: Expr, a: Expr) -> Expr:
    return 1 / (1 + applied("exp", -a))


# Operation -> what it is in simpler ones. Of a scalar only the chosen branch of a `where` at its root is computed.
_EXPANSIONS: dict[str, Callable[..., Expr]] = {
    "minimum": _extremum,
    "maximum": _extremum,
    "sign": _sign,
    "remainder": _remainder,
    "floor_divide": _floor_divide,
    "power": _power,
    "log1mexp": _log1mexp,
    "logaddexp": _logaddexp,
    "exp_of_difference": _exp_of_difference,
    "sigmoid": _sigmoid,
}
_BRANCHING = {"power", "log1mexp", "exp_of_difference"}


def _line_log1p(node: Expr, a: Expr) -> Expr:
    """Without cancellation: with u = 1 + a as rounded, log(u) a / (u - 1)."""
    u = 1 + a
    exact = _or(_same(u, 1), _same(u, u + u))
    log = applied("log", u)
    return _where(exact, _where(_same(u, 1), a, log), log * a / (u - 1))


def _line_expm1(node: Expr, a: Expr) -> Expr:
    """Without cancellation: with u = exp(a) as rounded, (u - 1) a / log(u)."""
    u = applied("exp", a)
    near = _and(abs(a) < 1, _differs(u, 1))
    return _where(near, (u - 1) * a / applied("log", u), _where(_same(u, 1), a, u - 1))


def _line_logaddexp(node: Expr, a: Expr, b: Expr) -> Expr:
    larger = _where(_or(b <= a, _differs(a, a)), a, b)
    found = larger + applied("log1p", applied("exp", -abs(a - b)))
    return _where(_same(a, b), a + _number(0.6931471805599453, node), found)


# Those that lines have otherwise, as the C library has them for one lane at a time only.
_LINE_EXPANSIONS: dict[str, Callable[..., Expr]] = {
    "log1p": _line_log1p,
    "expm1": _line_expm1,
    "logaddexp": _line_logaddexp,
}


def scalar_type(dtype: str) -> str:
    """The type of a register: half precisions are computed in float32."""
    if dtype in WIDTHS:
        return f"i{WIDTHS[dtype]}"
    return {"bool": "i1", "float64": "double"}.get(dtype, "float")


def register_type(dtype: str, lanes: int = 0) -> str:
    """The type of a scalar, or of a line."""
    return f"<{lanes} x {lane_type(dtype, lanes)}>" if lanes else scalar_type(dtype)


def lane_type(dtype: str, lanes: int) -> str:
    """The type of one lane of a line, which has 512 bits if it is no line of narrow integers."""
    return f"i{512 // lanes}" if dtype == "bool" else scalar_type(dtype)


def constant(value: Any, dtype: str, lanes: int = 0) -> str:
    """A constant, in all lanes of a line."""
    if lanes:
        one = str(-int(value)) if dtype == "bool" else constant(value, dtype)
        return f"<{', '.join([f'{lane_type(dtype, lanes)} {one}'] * lanes)}>"
    if dtype == "bool":
        return "true" if value else "false"
    if dtype in INTEGERS:
        return str(int(value))
    if dtype != "float64":
        # LLVM writes a float32 as the float64 of the same value.
        value = struct.unpack("f", struct.pack("f", value))[0] if abs(value) <= 3.5e38 else value
    return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"


class Instructions:
    """The instructions of one function, as they are added, and what they call."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: set[str] = set()
        self.label = "entry"
        self._count = 0

    # Instructions

    def name(self, word: str = "t") -> str:
        self._count += 1
        return f"{word}{self._count}"

    def add(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def let(self, text: str) -> str:
        """The name of what an instruction computes."""
        name = f"%{self.name()}"
        self.lines.append(f"  {name} = {text}")
        return name

    def begin(self, label: str) -> None:
        """What is added next is the block of this label."""
        self.lines.append(f"{label}:")
        self.label = label

    def branch(self, label: str) -> None:
        self.add(f"br label %{label}")

    def choose(self, condition: str, if_true: str, if_false: str) -> None:
        self.add(f"br i1 {condition}, label %{if_true}, label %{if_false}")

    def call(self, name: str, result: str, *operands: tuple[str, str]) -> str:
        """What a function of other code gives. operands  (type, operand)"""
        kinds = ", ".join(kind for kind, _ in operands)
        self.declared.add(f"declare {result} @{name}({kinds})")
        text = f"call {result} @{name}({', '.join(f'{kind} {operand}' for kind, operand in operands)})"
        if result == "void":
            self.add(text)
            return ""
        return self.let(text)

    def intrinsic(self, name: str, kind: str, *operands: str) -> str:
        """What a function of LLVM gives, for operands and a result of one type."""
        return self.call(f"llvm.{name}.{_mangled(kind)}", kind, *((kind, operand) for operand in operands))

    def spread(self, value: Value, dtype: str, lanes: int) -> str:
        """A scalar in all lanes of a line; a line as it is."""
        if value.lanes or not lanes:
            return value.text
        kind, text = register_type(dtype, lanes), value.text
        if dtype == "bool":
            text = self.let(f"sext i1 {text} to {lane_type(dtype, lanes)}")
        one = self.let(f"insertelement {kind} poison, {lane_type(dtype, lanes)} {text}, i64 0")
        return self.let(f"shufflevector {kind} {one}, {kind} poison, <{lanes} x i32> zeroinitializer")

    def bits(self, text: str, lanes: int) -> str:
        """Truth values as single bits, which instructions take."""
        return self.let(f"icmp ne {register_type('bool', lanes)} {text}, zeroinitializer") if lanes else text

    def mask(self, bits: str, lanes: int) -> str:
        """Truth values as registers hold them, from single bits."""
        return self.let(f"sext <{lanes} x i1> {bits} to {register_type('bool', lanes)}") if lanes else bits

    def converted(self, text: str, source: str, target: str, lanes: int = 0) -> str:
        """A value of one type as one of another, as `cast` has it."""
        of, to = register_type(source, lanes), register_type(target, lanes)
        if source == target or (source not in WIDTHS and of == to):
            return text
        if target == "bool":
            how = "fcmp une" if source in FLOATS else "icmp ne"
            return self.mask(self.let(f"{how} {of} {text}, zeroinitializer"), lanes)
        if source == "bool" and lanes:
            text, of = self.bits(text, lanes), f"<{lanes} x i1>"
        has_sign = source not in (*UNSIGNED, "bool")
        if source in FLOATS:
            if target in FLOATS:
                how = "fpext" if to.find("double") >= 0 else "fptrunc"
            else:
                how = "fptoui" if target in UNSIGNED else "fptosi"
        elif target in FLOATS:
            how = "sitofp" if has_sign else "uitofp"
        else:
            before, after = WIDTHS.get(source, 1), WIDTHS[target]
            if before == after:
                return text
            how = "trunc" if after < before else "sext" if has_sign else "zext"
        return self.let(f"{how} {of} {text} to {to}")

    # Expressions

    def compute(self, exprs: Sequence[Expr], arguments: Mapping[Argument, Value]) -> list[Value]:
        """The values of expressions of these arguments."""
        nodes = in_order(exprs)
        values: dict[Expr, Value] = {}
        fused = self._fused(nodes, exprs, arguments)
        for node in nodes:
            if node not in fused:
                values[node] = self._value(node, values, arguments, fused)
        return [values[expr] for expr in exprs]

    def _fused(self, nodes: Sequence[Expr], exprs: Iterable[Expr], arguments: Mapping[Argument, Value]) -> set[Expr]:
        """The products of lines that are one operation with the sum that alone uses them."""
        if not any(argument.lanes for argument in arguments.values()):
            return set()
        lines: set[Expr] = set()
        for node in nodes:
            if (isinstance(node, Argument) and arguments[node].lanes) or not lines.isdisjoint(node.operands):
                lines.add(node)
        uses = Counter(operand for node in nodes for operand in node.operands)
        uses.update(exprs)
        found: set[Expr] = set()
        for node in nodes:
            if node in lines and isinstance(node, Apply) and node.operation == "add" and node.dtype in FLOATS:
                products = (x for x in node.operands if _is_product(x) and uses[x] == 1 and x in lines)
                found |= {x for x in (next(products, None),) if x is not None}
        return found

    def _value(
        self, node: Expr, values: dict[Expr, Value], arguments: Mapping[Argument, Value], fused: set[Expr]
    ) -> Value:
        known = values.get(node)
        if known is not None:
            return known
        if isinstance(node, Constant):
            return Value(constant(node.value, node.dtype))
        if isinstance(node, Argument):
            return arguments[node]
        assert isinstance(node, Apply)
        product = next((x for x in node.inputs if x in fused), None) if node.operation == "add" else None
        if product is not None:
            other = node.inputs[node.inputs[0] is product]
            parts = (*product.operands, other)
            operands = [values[part] for part in parts]
            lanes = max(operand.lanes for operand in operands)
            texts = [self._operand(x, part, lanes) for x, part in zip(operands, parts)]
            return Value(self.intrinsic("fmuladd", register_type(node.dtype, lanes), *texts), lanes)
        operands = []
        for operand in node.inputs:
            if operand not in values:
                values[operand] = self._value(operand, values, arguments, fused)
            operands.append(values[operand])
        lanes = max((operand.lanes for operand in operands), default=0)
        expansion = (_LINE_EXPANSIONS.get(node.operation) if lanes else None) or _EXPANSIONS.get(node.operation)
        if expansion is not None:
            expanded = expansion(node, *node.inputs)
            if not lanes and node.operation in _BRANCHING:
                return self._branching(expanded, values, arguments)
            return self._value(expanded, values, arguments, set())
        return Value(self._applied(node, operands, lanes), lanes)

    def _operand(self, value: Value, node: Expr, lanes: int) -> str:
        if isinstance(node, Constant) and lanes:
            return constant(node.value, node.dtype, lanes)
        return self.spread(value, node.dtype, lanes)

    def _branching(self, node: Expr, values: dict[Expr, Value], arguments: Mapping[Argument, Value]) -> Value:
        """A scalar of which only the chosen branch of each `where` is computed."""
        if not (isinstance(node, Apply) and node.operation == "where"):
            return self._value(node, dict(values), arguments, set())
        condition = self._value(node.inputs[0], values, arguments, set())
        labels = [self.name("branch") for _ in range(2)]
        end = self.name("chosen")
        self.choose(condition.text, *labels)
        found = []
        for label, operand in zip(labels, node.inputs[1:]):
            self.begin(label)
            value = self._branching(operand, dict(values), arguments)
            found.append(f"[ {value.text}, %{self.label} ]")
            self.branch(end)
        self.begin(end)
        return Value(self.let(f"phi {scalar_type(node.dtype)} {', '.join(found)}"))

    def _applied(self, node: Apply, operands: Sequence[Value], lanes: int) -> str:
        """An operation that is no expression of others."""
        of = node.inputs[0].dtype
        name, is_float, kind = node.operation, of in FLOATS, register_type(of, lanes)
        texts = [self._operand(value, operand, lanes) for value, operand in zip(operands, node.inputs)]
        row = _INSTRUCTIONS.get(name, (None, None))[0 if is_float else 1]
        if row is not None:
            ones = constant(True if of == "bool" else -1, of, lanes)
            sign = "u" if of in (*UNSIGNED, "bool") else "s"
            found = self.let(row.format(*texts, T=kind, s=sign, ones=ones))
            return self.mask(found, lanes) if name in _COMPARISONS else found
        if name == "where":
            chosen = register_type(node.dtype, lanes)
            test = f"{_bits_type(lanes)} {self.bits(texts[0], lanes)}"
            return self.let(f"select {test}, {chosen} {texts[1]}, {chosen} {texts[2]}")
        if name == "cast":
            return self.converted(texts[0], of, node.dtype, lanes)
        if name == "bitcast":
            return self.let(f"bitcast {kind} {texts[0]} to {register_type(node.dtype, lanes)}")
        if name == "saturating_cast":
            to = register_type(node.dtype, lanes)
            how = f"llvm.fpto{'u' if node.dtype in UNSIGNED else 's'}i.sat.{_mangled(to)}.{_mangled(kind)}"
            return self.call(how, to, (kind, texts[0]))
        if name.startswith("saturating_"):
            if is_float:
                return self.let(f"f{name[11:14]} {kind} {texts[0]}, {texts[1]}")
            return self.intrinsic(f"{'u' if of in UNSIGNED else 's'}{name[11:14]}.sat", kind, *texts)
        if is_float:
            if name in _INTRINSICS:
                return self.intrinsic(_INTRINSICS[name], kind, *texts)
            if name == "truncate_divide":
                return self.intrinsic("trunc", kind, self.let(f"fdiv {kind} {texts[0]}, {texts[1]}"))
            if name == "power_of_library":
                return self.intrinsic("pow", kind, *texts)
            if name in _LIBRARY and not lanes:
                return self.call(name if kind == "double" else f"{name}f", kind, (kind, texts[0]))
        elif name == "abs":
            if of in UNSIGNED:
                return texts[0]
            return self.call(f"llvm.abs.{_mangled(kind)}", kind, (kind, texts[0]), ("i1", "false"))
        elif name in ("truncate_divide", "truncate_remainder"):
            return self._quotient(name == "truncate_divide", of, kind, lanes, texts)
        elif name in ("left_shift", "right_shift"):
            return self._shifted(name == "left_shift", of, kind, lanes, texts)
        raise UnsupportedError(f"{name} on {of} has no instruction{' on lines' if lanes else ''}")

    def _quotient(self, is_quotient: bool, of: str, kind: str, lanes: int, texts: Sequence[str]) -> str:
        """Of integers, towards zero. A processor traps at the divisor 0 and at the smallest integer by -1."""
        a, b = texts
        test = _bits_type(lanes)
        zero, one = constant(0, of, lanes), constant(1, of, lanes)
        is_zero = unsafe = self.let(f"icmp eq {kind} {b}, {zero}")
        has_sign = of not in UNSIGNED
        is_minus = ""
        if has_sign:
            is_minus = self.let(f"icmp eq {kind} {b}, {constant(-1, of, lanes)}")
            unsafe = self.let(f"or {test} {is_zero}, {is_minus}")
        safe = self.let(f"select {test} {unsafe}, {kind} {one}, {kind} {b}")
        how = f"{'s' if has_sign else 'u'}{'div' if is_quotient else 'rem'}"
        found = self.let(f"{how} {kind} {a}, {safe}")
        if is_quotient:
            if has_sign:
                negative = self.let(f"sub {kind} {zero}, {a}")
                found = self.let(f"select {test} {is_minus}, {kind} {negative}, {kind} {found}")
            found = self.let(f"select {test} {is_zero}, {kind} {zero}, {kind} {found}")
        # A remainder by 1, which stands for 0 and -1, is 0.
        return found

    def _shifted(self, is_left: bool, of: str, kind: str, lanes: int, texts: Sequence[str]) -> str:
        """As NumPy has it: places below 0 or beyond the width of the type leave zeros, or copies of the sign."""
        a, b = texts
        test = _bits_type(lanes)
        inside = self.let(f"icmp ult {kind} {b}, {constant(WIDTHS[of], of, lanes)}")
        if not is_left and of not in UNSIGNED:
            places = self.let(f"select {test} {inside}, {kind} {b}, {kind} {constant(WIDTHS[of] - 1, of, lanes)}")
            return self.let(f"ashr {kind} {a}, {places}")
        zero = constant(0, of, lanes)
        places = self.let(f"select {test} {inside}, {kind} {b}, {kind} {zero}")
        found = self.let(f"{'shl' if is_left else 'lshr'} {kind} {a}, {places}")
        return self.let(f"select {test} {inside}, {kind} {found}, {kind} {zero}")


def _bits_type(lanes: int) -> str:
    return f"<{lanes} x i1>" if lanes else "i1"


def _mangled(kind: str) -> str:
    """A type as it is in names of LLVM's functions."""
    if kind.startswith("<"):
        lanes, _, scalar = kind[1:-1].partition(" x ")
        return f"v{lanes}{_mangled(scalar)}"
    return {"double": "f64", "float": "f32"}.get(kind, kind)


def _is_product(node: Expr) -> bool:
    return isinstance(node, Apply) and node.operation == "multiply" and node.dtype in FLOATS
