"""Numba source of folds of elements: one kernel per operator and purpose, with the operator unrolled in place.

Arrays are flat: scalar c of leaf l of the element at (row, column) is `v_l[(row * width + column) * size_l + c]`.
A kernel works on rows (or segments) start..stop and columns first..last and allocates nothing. For a single column
there is a source of its own, which keeps a scan's state in registers.

The kernel of the scan of linear functions, pairs `(a_0 * b_0, a_1 * b_0 + b_1)`, in its single-column form:

    for s in range(start, stop):
        head, tail = load(offsets, s), load(offsets, s + 1)
        if head == tail:
            continue
        p = head
        a0 = load(v0, p)
        a1 = load(v1, p)
        store(o0, p, a0)
        store(o1, p, a1)
        for i in range(1, tail - head):
            p = head + i
            b0 = load(v0, p)
            b1 = load(v1, p)
            t0 = a0 * b0
            t1 = a1 * b0
            t2 = t1 + b1
            a0, a1 = t0, t2
            store(o0, p, a0)
            store(o1, p, a1)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any

from derivable.algebra.expr.emit_numba import DECORATOR, HEADER, preamble, statements
from derivable.algebra.expr.generated import load_generated
from derivable.algebra.expr.nodes import Apply, Expr, in_order
from derivable.algebra.monoid import TypedMonoid
from derivable.algebra.recurrence import recurrence_of
from derivable.kernel.emit_numba import compile_kernel, has_line_form
from derivable.kernel.schedule import Schedule
from derivable.parallel.fold_kernels import needs, widened
from derivable.parallel.scan_kernels import only_selects, scan_back_kernel, scan_kernel

_IMPORT = """from derivable.device.cpu.lanes import prefetch
from derivable.device.cpu.places import choose, hidden, load, store
"""
# How many rows ahead buckets are asked for that do not fit a near cache: of one column, of one column where even the
# next cache is too small, and of several columns.
AHEAD, FARTHER_AHEAD, WIDE_AHEAD = 40, 96, 16
# How many rows are asked for at a time, a cache line's of float32, and how many rows ahead.
_LINE, _ROWS_AHEAD = 16, 512
# The kernels of an operator by its key, the purpose and its options.
_kernels: dict[tuple, Callable] = {}


def kernel(
    op: TypedMonoid,
    purpose: str,
    single: bool,
    reverse: bool = False,
    exclusive: bool = False,
    ahead: int = 0,
) -> Callable:
    """The jitted kernel of an operator for a purpose, a key of `PURPOSES`.

    single  for one column
    ahead   how many rows ahead buckets of one column are asked for; 0 for buckets of any that fit a near cache
    """
    # An operator that has run finds its kernels by itself; the key is as long as its expressions.
    mine, options = op.__dict__.setdefault("kernels", {}), (purpose, single, reverse, exclusive, ahead)
    found = mine.get(options)
    if found is not None:
        return found
    key = (op.key, *options)
    found = _kernels.get(key)
    if found is None:
        writer = Writer(op, single, reverse, exclusive, ahead)
        parameters, body = PURPOSES[purpose](writer)
        source = writer.module(purpose, parameters, body)
        module: Any = load_generated(source, purpose)
        found = _kernels[key] = getattr(module, purpose)
    mine[options] = found
    return found


# What lanes compute one after the other, or in many steps.
_SLOW_ON_LINES = {"exp", "expm1", "log", "log1p", "log1mexp", "logaddexp", "power", "sin", "cos", "tanh", "sigmoid"}
# A scan by lines holds some five lines of each component at a time.
_MOST_COMPONENTS = 6


def compiled_scan(op: TypedMonoid, single: bool, reverse: bool, back: bool) -> Callable:
    """The jitted kernel of `scan_kernel`, or of `scan_back_kernel`."""
    mine, options = op.__dict__.setdefault("kernels", {}), ("scan", single, reverse, back)
    found = mine.get(options)
    if found is not None:
        return found
    key = (op.key, op.neutral, *options)
    found = _kernels.get(key)
    if found is None:
        lower = scan_back_kernel if back else scan_kernel
        found = _kernels[key] = compile_kernel(lower(op, scan_schedule(op, single, back), single, reverse))
    mine[options] = found
    return found


def scan_schedule(op: TypedMonoid, single: bool, back: bool = False) -> Schedule:
    """How a scan runs on lanes, or its reverse rule: float64 in between, unless nothing is computed."""
    wide = widened(op)
    exprs = list(wide.values)
    size = op.size
    if back:
        recurrence = recurrence_of(wide)
        exprs = [*recurrence.entries, *recurrence.operator.values, *wide.adjoints.right]
        size = recurrence.operator.size
    if not single or size > _MOST_COMPONENTS or set(op.leaf_sizes) != {1} or not _works_on_lines(exprs):
        return Schedule()
    if not back and only_selects(op) and set(op.dtypes) <= {"bool", "float32"} and "float32" in op.dtypes:
        return Schedule(lanes=16, guard=True)
    return Schedule(lanes=8, widen=True, guard=True)


def _works_on_lines(exprs: Sequence[Expr]) -> bool:
    applied = {node.operation for node in in_order(tuple(exprs)) if isinstance(node, Apply)}
    return not applied & _SLOW_ON_LINES and has_line_form(exprs)


def indent(lines: Iterable[str], levels: int) -> list[str]:
    return [" " * (4 * levels) + line for line in lines]


class Writer:
    """Pieces of source for one operator: loads, stores, the operator, its vjp, loops over columns.

    Components of the left operand are variables `a0, a1, ...`, of the right one `b0, ...`, adjoints `r0, ...`.
    """

    def __init__(self, op: TypedMonoid, single: bool, reverse: bool, exclusive: bool, ahead: int):
        self.op = op
        self.single = single
        self.reverse = reverse
        self.exclusive = exclusive
        self.ahead = ahead
        self.all = tuple(range(op.size))
        self.floats = op.float_components
        self.leaves = tuple(range(len(op.leaf_sizes)))
        self.used: list[Expr] = []
        self._place = [(leaf, k - op.starts[leaf]) for leaf in self.leaves for k in range(*op.starts[leaf : leaf + 2])]

    @cached_property
    def prefixes(self) -> tuple[int, ...]:
        """The left operand's components that the vjp reads."""
        return tuple(k for k in self.all if needs(self.op).prefixes[k])

    @cached_property
    def rights(self) -> tuple[int, ...]:
        """The right operand's components that the vjp reads."""
        return tuple(k for k in self.all if needs(self.op).rights[k])

    def module(self, name: str, parameters: Sequence[str], body: Sequence[str]) -> str:
        parts = [HEADER + _IMPORT, preamble(self.used)]
        function = [DECORATOR, f"def {name}({', '.join(parameters)}):", *indent(body, 1)]
        return "\n\n".join([part for part in parts if part] + ["\n".join(function) + "\n"])

    def arrays(self, role: str, leaves: Iterable[int] | None = None) -> list[str]:
        return [f"{role}{leaf}" for leaf in (self.leaves if leaves is None else leaves)]

    def position(self, role: str, row: str, component: int) -> str:
        leaf, offset = self._place[component]
        size = self.op.leaf_sizes[leaf]
        return f"{role}{leaf}, {row}" if size == 1 else f"{role}{leaf}, {row} * {size} + {offset}"

    def leaf_of(self, component: int) -> int:
        return self._place[component][0]

    def loads(self, name: str, role: str, row: str, components: Iterable[int] | None = None) -> list[str]:
        components = self.all if components is None else components
        return [f"{name}{k} = load({self.position(role, row, k)})" for k in components]

    def stores(
        self, role: str, row: str, values: Sequence[str] | str, components: Iterable[int] | None = None
    ) -> list[str]:
        """values  one text per stored component, or the start of their names"""
        components = self.all if components is None else tuple(components)
        texts = [f"{values}{k}" for k in components] if isinstance(values, str) else values
        return [f"store({self.position(role, row, k)}, {text})" for k, text in zip(components, texts)]

    def fold(self, left: str = "a", right: str = "b", temporaries: str = "t") -> tuple[list[str], list[str]]:
        """(lines, the texts of the components of a op b)"""
        names = {**dict(zip(self.op.left, self.names(left))), **dict(zip(self.op.right, self.names(right)))}
        self.used.extend(self.op.values)
        return statements(self.op.values, names, temporaries, "")

    def back(self) -> tuple[list[str], list[str], list[str]]:
        """(lines, the adjoints of a's float components, those of b's), from r."""
        rules = self.op.adjoints
        names = {
            **dict(zip(self.op.left, self.names("a"))),
            **dict(zip(self.op.right, self.names("b"))),
            **dict(zip(rules.arguments, self.names("r"))),
        }
        exprs = [rules.left[k] for k in self.floats] + [rules.right[k] for k in self.floats]
        self.used.extend(exprs)
        lines, texts = statements(exprs, names, "d", "")
        return lines, texts[: len(self.floats)], texts[len(self.floats) :]

    def names(self, letter: str, components: Iterable[int] | None = None) -> list[str]:
        return [f"{letter}{k}" for k in (self.all if components is None else components)]

    def assign(self, targets: Sequence[str], texts: Sequence[str]) -> list[str]:
        """All at once: a text may be another target's old value."""
        if list(targets) == list(texts) or not targets:
            return []
        return [f"{', '.join(targets)} = {', '.join(texts)}"]

    def columns(
        self, rows: dict[str, str], body: Sequence[str], column: str = "j", backwards: bool = False
    ) -> list[str]:
        """`body` for each `column`, with the positions `rows` (name -> row) of the column's elements.

        backwards  where the rows go backwards too: memory is then read in one direction, as prefetching wants it
        """
        if self.single:
            return [*(f"{name} = {row}" for name, row in rows.items() if name != row), *body]
        if not backwards:
            positions = [f"{name} = ({row}) * width + {column}" for name, row in rows.items()]
            return [f"for {column} in range(first, last):", *indent([*positions, *body], 1)]
        before = [f"{name}_row = hidden(({row}) * width)" for name, row in rows.items()]
        positions = [f"{name} = {name}_row + {column}" for name in rows]
        return [*before, f"for {column} in range(last - 1, first - 1, -1):", *indent([*positions, *body], 1)]


_RANGE = ["start", "stop", "first", "last", "width"]


def _segments(body: Sequence[str], empty: Sequence[str] = ("continue",)) -> list[str]:
    return [
        "for s in range(start, stop):",
        *indent(["head, tail = load(offsets, s), load(offsets, s + 1)", "if head == tail:", *indent(empty, 1)], 1),
        *indent(body, 1),
    ]


def _neutral(w: Writer, k: int) -> str:
    return f"load({w.position('n', '0', k)})"


def _segment(w: Writer) -> tuple[list[str], list[str]]:
    lines, values = w.fold()
    empty = w.columns({"p": "s"}, [line for k in w.all for line in w.stores("o", "p", [_neutral(w, k)], [k])])
    if w.single:
        step = [*w.loads("b", "v", "e"), *lines, *w.assign(w.names("a"), values)]
        body = [
            *w.loads("a", "v", "head"),
            "for e in range(head + 1, tail):",
            *indent(step, 1),
            *w.stores("o", "s", "a"),
        ]
    else:
        body = w.columns({"p": "head", "q": "s"}, [*w.loads("a", "v", "p"), *w.stores("o", "q", "a")])
        step = [*w.loads("a", "o", "q"), *w.loads("b", "v", "p"), *lines, *w.stores("o", "q", values)]
        body += ["for e in range(head + 1, tail):", *indent(w.columns({"p": "e", "q": "s"}, step), 1)]
    parameters = [*_RANGE, "offsets", *w.arrays("n"), *w.arrays("v"), *w.arrays("o")]
    return parameters, _segments(body, [*empty, "continue"])


def _segment_back(w: Writer) -> tuple[list[str], list[str]]:
    """`l`: the exclusive prefixes, in the memory of the adjoints `o` for float leaves."""
    prefix_leaves = needs(w.op).prefix_leaves(w.op)
    body: list[str] = []
    if prefix_leaves:
        lines, values = w.fold()
        if w.single:
            step = [*w.stores("l", "e", "a", w.prefixes), *w.loads("b", "v", "e"), *lines]
            step += w.assign(w.names("a"), values)
            body += [*w.loads("a", "v", "head"), "for e in range(head + 1, tail):", *indent(step, 1)]
        else:
            # The running values of all components: `x`, one row.
            body += w.columns({"p": "head", "q": "0"}, [*w.loads("a", "v", "p"), *w.stores("x", "q", "a")])
            step = [*w.loads("a", "x", "q"), *w.stores("l", "p", "a", w.prefixes), *w.loads("b", "v", "p")]
            step += [*lines, *w.stores("x", "q", values)]
            body += ["for e in range(head + 1, tail):", *indent(w.columns({"p": "e", "q": "0"}, step), 1)]
    lines, left, right = w.back()
    reads = [*w.loads("a", "l", "p", w.prefixes), *w.loads("b", "v", "p", w.rights), *lines]
    if w.single:
        step = ["p = e", *reads, *w.stores("o", "e", right, w.floats), *w.assign(w.names("r", w.floats), left)]
        body += [*w.loads("r", "g", "s", w.floats), "for e in range(tail - 1, head, -1):", *indent(step, 1)]
        body += w.stores("o", "head", "r", w.floats)
    else:
        # The running adjoint lives in the first row, which needs no prefix.
        body += w.columns(
            {"p": "s", "q": "head"}, [*w.loads("r", "g", "p", w.floats), *w.stores("o", "q", "r", w.floats)]
        )
        step = [*w.loads("r", "o", "q", w.floats), *reads]
        step += [*w.stores("o", "q", left, w.floats), *w.stores("o", "p", right, w.floats)]
        step = w.columns({"p": "e", "q": "head"}, step, backwards=True)
        body += ["for e in range(tail - 1, head, -1):", *indent(step, 1)]
    floats = w.op.float_leaves
    parameters = [*_RANGE, "offsets", *w.arrays("g", floats), *w.arrays("v"), *w.arrays("o", floats)]
    return [*parameters, *w.arrays("l", prefix_leaves), *w.arrays("x")], _segments(body)


def _elements(
    w: Writer,
    body: Sequence[str],
    buckets: Sequence[str],
    rows: Sequence[str],
    outside: Sequence[str] = (),
    backwards: bool = False,
) -> list[str]:
    """For each element e of a range with its bucket k, unless that is out of range.

    buckets  the arrays that are read at k
    rows     the arrays that are read or written at e
    """
    sizes = [w.op.leaf_sizes[int(name[1:])] for name in buckets]
    ask = []
    for name, size in zip(buckets, sizes):
        if w.single:
            ask += [f"prefetch({name}, k_ahead * {size})"]
        else:
            ask += [f"for line in range(first * {size}, last * {size}, 64 // {name}.itemsize):"]
            ask += [f"    prefetch({name}, k_ahead * width * {size} + line)"]
    test = ["if np.uint64(k) < limit:", *indent(body, 1)]
    if outside:
        test += ["else:", *indent(outside, 1)]

    def loop(first: str, last: str, ahead: str = "") -> list[str]:
        """ahead  the element whose bucket is asked for at element e"""
        step = ["k = np.int64(load(indices, e))"]
        step += [f"k_ahead = np.int64(load(indices, {ahead}))", *ask] if ahead else []
        over = f"range({last} - 1, {first} - 1, -1)" if backwards else f"range({first}, {last})"
        return [f"for e in {over}:", *indent([*step, *test], 1)]

    limit, far = "limit = np.uint64(buckets)", w.ahead
    if not far:
        return [limit, *loop("start", "stop")]
    if not w.single:
        ahead = f"max(e - {WIDE_AHEAD}, start)" if backwards else f"min(e + {WIDE_AHEAD}, stop - 1)"
        return [limit, *loop("start", "stop", ahead)]
    # For single numbers a loop of its own for the last ones costs less than a minimum for each. Between so many buckets
    # the processor loses sight of the rows, so their lines are asked for as well.
    whole = f"max(0, stop - start - {far}) // {_LINE} * {_LINE}"
    if backwards:
        begin, sign, line, rest = "stop", "-", (f"i - {_LINE}", "i"), ("start", "turn")
    else:
        begin, sign, line, rest = "start", "+", ("i", f"i + {_LINE}"), ("turn", "stop")
    of_rows = [f"prefetch({name}, i {sign} {_ROWS_AHEAD})" for name in ("indices", *rows)]
    lines = [limit, f"turn = {begin} {sign} {whole}", f"for i in range({begin}, turn, {sign}{_LINE}):"]
    lines += indent([*of_rows, *loop(*line, f"e {sign} {far}")], 1)
    return [*lines, *loop(*rest)]


def _index(w: Writer) -> tuple[list[str], list[str]]:
    lines, values = w.fold()
    reads = [*w.loads("a", "h", "q"), *w.loads("b", "v", "p")]
    parameters = [*_RANGE, "buckets", "indices", *w.arrays("v"), *w.arrays("h")]
    if w.op.special in ("min", "max") and w.single and not w.ahead:
        return parameters, _index_extremum(w, ["store(h0, k, b0)"])
    changed = [k for k in w.all if w.op.values[k] is not w.op.left[k]]
    step = [*reads, *lines, *w.stores("h", "q", [values[k] for k in changed], changed)]
    return parameters, _elements(w, w.columns({"p": "e", "q": "k"}, step), w.arrays("h"), w.arrays("v"))


def _index_extremum(w: Writer, change: Sequence[str]) -> list[str]:
    """Most elements of a bucket with many change nothing, and a store would make the next element wait."""
    places = range(4)
    inside = " & ".join(f"(k{d} < limit)" for d in places)
    comparison = _comparison(w)
    unchanged = " & ".join(f"(load(h0, k{d}) {comparison} load(v0, i + {d}))" for d in places)
    four = [f"k{d} = np.uint64(np.int64(load(indices, i + {d})))" for d in places]
    four += [f"if {inside}:", f"    quiet = {unchanged}"]
    one = ["k = np.int64(load(indices, e))", "if np.uint64(k) < limit:", "    a0, b0 = load(h0, k), load(v0, e)"]
    one += [f"    if not ({_stays(w)}):", *indent(change, 2)]
    four += ["else:", "    quiet = False", "if not quiet:", "    for e in range(i, i + 4):", *indent(one, 2)]
    body = ["limit = np.uint64(buckets)", "turn = start + (stop - start) // 4 * 4"]
    body += ["for i in range(start, turn, 4):", *indent(four, 1)]
    return [*body, "for e in range(turn, stop):", *indent(one, 1)]


def _comparison(w: Writer) -> str:
    return ">=" if w.op.special == "max" else "<="


def _stays(w: Writer) -> str:
    """Whether the extremum of a0 and b0 is a0, what is not a number included."""
    return f"(a0 {_comparison(w)} b0) | (a0 != a0)"


def _index_winners(w: Writer) -> tuple[list[str], list[str]]:
    """`_index` of extrema with `l`: the row whose number a bucket has, written where that changes."""
    parameters = [*_RANGE, "buckets", "indices", "v0", "h0", "l0"]
    if w.single and not w.ahead:
        return parameters, _index_extremum(w, ["store(h0, k, b0)", "store(l0, k, e)"])
    step = [*w.loads("a", "h", "q"), *w.loads("b", "v", "p"), f"stays = {_stays(w)}"]
    step += ["store(h0, q, choose(stays, a0, b0))", "store(l0, q, choose(stays, load(l0, q), l0.dtype.type(e)))"]
    return parameters, _elements(w, w.columns({"p": "e", "q": "k"}, step), ["h0", "l0"], ["v0"])


def _index_prefixes(w: Writer) -> tuple[list[str], list[str]]:
    lines, values = w.fold()
    step = [*w.loads("a", "h", "q"), *w.loads("b", "v", "p"), *w.stores("l", "p", "a", w.prefixes)]
    step += [*lines, *w.stores("h", "q", values)]
    leaves = needs(w.op).prefix_leaves(w.op)
    parameters = [*_RANGE, "buckets", "indices", *w.arrays("v"), *w.arrays("h"), *w.arrays("l", leaves)]
    outside = w.columns({"p": "e"}, w.stores("l", "p", ["0"] * len(w.prefixes), w.prefixes)) if leaves else ()
    return parameters, _elements(w, w.columns({"p": "e", "q": "k"}, step), w.arrays("h"), w.arrays("v"), outside)


def _index_back(w: Writer) -> tuple[list[str], list[str]]:
    """`c`: the running adjoints of the buckets. Where they stay as they are nothing is written to them."""
    lines, left, right = w.back()
    step = [*w.loads("r", "c", "q", w.floats), *w.loads("a", "l", "p", w.prefixes)]
    step += [*w.loads("b", "v", "p", w.rights), *lines]
    changed = [(k, text) for k, text in zip(w.floats, left) if text != f"r{k}"]
    step += w.stores("c", "q", [text for _, text in changed], [k for k, _ in changed])
    step += w.stores("o", "p", right, w.floats)
    outside = w.columns({"p": "e"}, w.stores("o", "p", ["0"] * len(w.floats), w.floats))
    floats, leaves = w.op.float_leaves, needs(w.op).prefix_leaves(w.op)
    parameters = [*_RANGE, "buckets", "indices", *w.arrays("v"), *w.arrays("l", leaves), *w.arrays("c", floats)]
    parameters += w.arrays("o", floats)
    body = w.columns({"p": "e", "q": "k"}, step, backwards=True)
    rows = [*w.arrays("l", leaves), *w.arrays("v", {w.leaf_of(k) for k in w.rights}), *w.arrays("o", floats)]
    return parameters, _elements(w, body, w.arrays("c", floats), rows, outside, backwards=True)


def _merge(w: Writer) -> tuple[list[str], list[str]]:
    """Parts [part, item] of items start..stop are folded in order into `o` [item]."""
    lines, values = w.fold()
    step = ["q = c * items + m", *w.loads("b", "h", "q"), *lines, *w.assign(w.names("a"), values)]
    body = [*w.loads("a", "h", "m"), "for c in range(1, parts):", *indent(step, 1), *w.stores("o", "m", "a")]
    parameters = ["start", "stop", "parts", "items", *w.arrays("h"), *w.arrays("o")]
    return parameters, ["for m in range(start, stop):", *indent(body, 1)]


def _merge_winners(w: Writer) -> tuple[list[str], list[str]]:
    """`_merge` of extrema with the parts' rows `l` [part, item], of which those with the result go to `x` [item]."""
    step = ["q = c * items + m", *w.loads("b", "h", "q"), f"stays = {_stays(w)}"]
    step += ["a0, row = choose(stays, a0, b0), choose(stays, row, load(l0, q))"]
    body = ["a0, row = load(h0, m), load(l0, m)", "for c in range(1, parts):", *indent(step, 1)]
    body += ["store(o0, m, a0)", "store(x0, m, row)"]
    return ["start", "stop", "parts", "items", "h0", "l0", "o0", "x0"], [
        "for m in range(start, stop):",
        *indent(body, 1),
    ]


def _merge_back(w: Writer) -> tuple[list[str], list[str]]:
    """From adjoints `g` [item] those of the parts `c` [part, item]; `x` [part, item] is scratch for prefixes."""
    lines, values = w.fold()
    step = ["q = c * items + m", *w.stores("x", "q", "a"), *w.loads("b", "h", "q"), *lines]
    step += w.assign(w.names("a"), values)
    body = [*w.loads("a", "h", "m"), "for c in range(1, parts):", *indent(step, 1), *w.loads("r", "g", "m", w.floats)]
    lines, left, right = w.back()
    step = ["q = c * items + m", *w.loads("a", "x", "q", w.prefixes), *w.loads("b", "h", "q", w.rights), *lines]
    step += [*w.stores("c", "q", right, w.floats), *w.assign(w.names("r", w.floats), left)]
    body += ["for c in range(parts - 1, 0, -1):", *indent(step, 1), *w.stores("c", "m", "r", w.floats)]
    floats = w.op.float_leaves
    parameters = ["start", "stop", "parts", "items", *w.arrays("g", floats), *w.arrays("h"), *w.arrays("c", floats)]
    return [*parameters, *w.arrays("x")], ["for m in range(start, stop):", *indent(body, 1)]


PURPOSES: dict[str, Callable[[Writer], tuple[list[str], list[str]]]] = {
    "segment": _segment,
    "segment_back": _segment_back,
    "index": _index,
    "index_prefixes": _index_prefixes,
    "index_back": _index_back,
    "index_winners": _index_winners,
    "merge": _merge,
    "merge_winners": _merge_winners,
    "merge_back": _merge_back,
}
