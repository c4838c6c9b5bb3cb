"""Programs of other semirings as programs of real numbers, so that they have derivatives.

Where the sum of a semiring takes one of its terms, as a minimum does, the result is that term: the terms that are taken
are found first, and in real numbers a sum runs over them alone. Of

    sum(<j, a> in A(i)) a * X(j)                                                              in `min_plus`

that is, with `first`, one more than the first `j` of all that attain the minimum,

    sum(<j, a> in A(i)) if real(j) + 1.0 == first(i) then sum(<_, x> in { 0 -> X(j) }) a + x

Which terms are taken is constant wherever there is a derivative, so that this program is differentiated like any
other, to any order. Of several terms that attain a minimum the first one is taken, in the order in which sums run: of
a sum with `+` in it the terms on the left come first, then those of smaller indices of the outermost loop.

Products become what they are in real numbers: `a + x` above. The program has an entry where the first one has, so where
a factor may have none it is run over. The sum of logarithms, which has a derivative by every term, is the logarithm of
a sum of exponentials of differences from itself.

Source: Danskin's theorem for minima and maxima.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from derivable.algebra import semirings
from derivable.algebra.expr.nodes import Apply as Operation
from derivable.algebra.semiring import Semiring
from derivable.core.diagnostics import UnsupportedError
from derivable.core.names import FreshNames
from derivable.tensor.analysis.anf import Bindings, bound, from_scalars
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import names_in
from derivable.tensor.language.check import check
from derivable.tensor.language.linearity import guarded_part, is_present
from derivable.tensor.language.program import Program, Stage
from derivable.tensor.language.types import INT, Type
from derivable.tensor.optimisation.normalise import scalar_products

# What the sum of a semiring is: a choice of the least or the greatest, or a smooth function.
_SUMS = {"add": "add", "minimum": "least", "maximum": "greatest", "logaddexp": "log"}
Around = Callable[[t.Node], t.Node]
_ZERO_KEY = t.Number(0)


def in_reals(program: Program, semiring: str | Semiring) -> Program:
    """The program that gives in the real semiring what this one gives in another.

    What has no entries has none in either, and a number without a value is the zero of the semiring.

    Raises UnsupportedError, with the reason, for a semiring whose sums and products have no derivatives.
    """
    record = semirings.get(semiring)
    if record.name == "real":
        return program
    kind = _kind_of(record)
    node = scalar_products(program.guarded(record).node, program.inputs)
    fresh = FreshNames(names_in(node) | set(program.inputs))
    node = _Names(fresh).tail(node)
    made = _Reals(record, kind, fresh, program)
    scope = _Scope(dict(program.inputs))
    found = made.unit(node, scope)
    if program.type.is_scalar:
        name = fresh("s")
        found = t.Let(name, found, made.total(t.Var(name)))
    return Program(
        found, program.inputs, program.type, program, stages=tuple(made.stages), semiring="real", is_guarded=True
    )


def _kind_of(record: Semiring) -> str:
    reason = None
    if not record.is_scalar:
        reason = "its values are nests of numbers"
    elif record.carrier != "float":
        kinds = {"bool": "truth values", "integer": "integers"}
        reason = f"its values are {kinds[record.carrier]}, which change in steps"
    else:
        plus = record.typed("float64").plus
        (value,) = plus.values
        name = value.operation if isinstance(value, Operation) else ""
        is_plain = tuple(value.operands) == (*plus.left, *plus.right)
        if name in _SUMS and is_plain and (name != "add" or record.zero == 0):
            return _SUMS[name]
        reason = f"its plus is `{value}`, and sums that are differentiated are +, min, max and logaddexp"
    raise UnsupportedError(
        f"programs in the semiring {record.name!r} have no derivatives: {reason}",
        hint="`formal=True` asks for the formal derivative, by the rules of sums and products",
    )


class _Names:
    """Gives names to all sums that are operands, and to the keys of all loops."""

    def __init__(self, fresh: Callable[[str], str]):
        self.fresh = fresh

    def tail(self, node: t.Node) -> t.Node:
        lets: Bindings = []
        match node:
            case t.Let():
                return replace(node, value=self.tail(node.value), body=self.tail(node.body))
            case t.Sum():
                over = node.range
                if isinstance(over, t.PHYSICAL):
                    over = over.with_children(tuple(self.operand(child, lets) for child in over.children))
                    value = self.fresh("k") if node.value == "_" else node.value
                    node = replace(node, value=value)
                else:
                    over = self.operand(over, lets)
                    node = replace(node, key=self.fresh("k") if node.key == "_" else node.key)
                return bound(lets, replace(node, range=over, body=self.tail(node.body)))
            case t.If():
                condition = self.operand(node.condition, lets)
                return bound(lets, replace(node, condition=condition, body=self.tail(node.body)))
            case t.Singleton():
                key = self.operand(node.key, lets)
                return bound(lets, replace(node, key=key, value=self.tail(node.value)))
            case t.Add():
                return node.with_children(tuple(self.tail(child) for child in node.children))
        return bound(lets, self.operand(node, lets))

    def operand(self, node: t.Node, lets: Bindings) -> t.Node:
        if isinstance(node, (t.Lookup, t.Multiply, t.Apply)):
            return node.with_children(tuple(self.operand(child, lets) for child in node.children))
        if not node.children:
            return node
        name = self.fresh("t")
        lets.append((name, self.tail(node)))
        return t.Var(name)


@dataclass(frozen=True)
class _Leaf:
    """A number that goes to an entry.

    path   of the sums of two terms around it, which of both it is in
    loops  the keys of the loops that it stands in
    keys   of the entry
    """

    path: tuple[int, ...] = ()
    loops: tuple[t.Var, ...] = ()
    keys: tuple[t.Node, ...] = ()

    @property
    def rivals(self) -> tuple[t.Var, ...]:
        """The loops whose rounds go to one entry."""
        return tuple(loop for loop in self.loops if loop not in self.keys)


@dataclass(frozen=True)
class _Scope:
    """Where an expression stands.

    types    of its names
    around   (expression) -> the sums and names outside of it around it, outermost first; sums give their keys to it
    outer    the keys of those sums
    present  names of numbers that certainly have a value
    leaf     where it stands in what a name stands for, or in the whole program
    """

    types: dict[str, Type | None]
    around: tuple[Around, ...] = ()
    outer: tuple[t.Node, ...] = ()
    present: frozenset[str] = frozenset()
    leaf: _Leaf = _Leaf()

    def let(self, node: t.Let) -> _Scope:
        types = {**self.types, node.name: check(node.value, self.types)}
        present = self.present | {node.name} if is_present(node.value, self.present) else self.present - {node.name}
        return replace(self, types=types, present=present, around=(*self.around, lambda x: replace(node, body=x)))

    def loop(self, node: t.Sum) -> _Scope:
        over = check(node.range, self.types)
        types = {**self.types, node.key: INT, node.value: over and over.inner}
        # What tells the rounds of a loop apart.
        key = t.Var(node.value if isinstance(node.range, t.Range) else node.key)
        return replace(
            self,
            types=types,
            present=self.present | {node.key, node.value},
            outer=(*self.outer, key),
            around=(*self.around, lambda x: replace(node, body=t.Singleton(key, x))),
            leaf=replace(self.leaf, loops=(*self.leaf.loops, key)),
        )

    def when(self, node: t.If) -> _Scope:
        return replace(self, around=(*self.around, lambda x: replace(node, body=x)))

    def whole(self, node: t.Node) -> t.Node:
        """The tensor of an expression for all rounds of the sums outside."""
        for around in reversed(self.around):
            node = around(node)
        return node


# (expression, where it stands) -> expression
Change = Callable[[t.Node, _Scope], t.Node]


class _Reals:
    def __init__(self, record: Semiring, kind: str, fresh: Callable[[str], str], program: Program):
        self.record, self.kind, self.fresh, self.inputs = record, kind, fresh, program.inputs
        self.stages: list[Stage] = []
        times = record.typed("float64").times
        (self.product,) = times.values
        self.factors = (*times.left, *times.right)
        # A product of real numbers has no entry where a factor has none.
        is_product = isinstance(self.product, Operation) and self.product.operation == "multiply"
        self.multiplies = is_product and tuple(self.product.operands) == self.factors and record.zero == 0

    # Sums

    def unit(self, node: t.Node, scope: _Scope) -> t.Node:
        """What a name stands for, or the whole program, in real numbers."""
        if isinstance(node, t.Let):
            return replace(node, value=self.unit(node.value, scope), body=self.unit(node.body, scope.let(node)))
        scope = replace(scope, leaf=_Leaf())
        leaves = self.leaves(node, scope)
        is_sum = len(leaves) > 1 or any(leaf.rivals for leaf in leaves)
        if self.kind == "add" or not is_sum:
            return self.converted(node, scope, lambda leaf, real: real)
        node = _with_terms(node, scope, lambda part, inner: self.expanded(part, check(part, inner.types)))
        if self.kind == "log":
            return self.log_of_sum(node, scope)
        taken = self.choice(node, scope, self.leaves(node, scope))
        return self.converted(node, scope, lambda leaf, real: _when(taken[leaf], real))

    def leaves(self, node: t.Node, scope: _Scope) -> list[_Leaf]:
        found: list[_Leaf] = []

        def visit(part: t.Node, inner: _Scope) -> t.Node:
            found.append(inner.leaf)
            return part

        _with_terms(node, scope, visit)
        return found

    def converted(self, node: t.Node, scope: _Scope, finish: Callable[[_Leaf, t.Node], t.Node]) -> t.Node:
        """A sum with its terms in real numbers; finish: (leaf, its value) -> term."""
        return _with_terms(
            node, scope, lambda part, inner: finish(inner.leaf, self.term(part, inner)), self.unit, self.operand
        )

    def expanded(self, node: t.Node, of: Type | None) -> t.Node:
        """A term as numbers that go to entries."""
        if of is None or of.is_scalar:
            return node
        key, value = self.fresh("k"), self.fresh("a")
        return t.Sum(key, value, node, t.Singleton(t.Var(key), self.expanded(t.Var(value), of.inner)))

    def choice(self, node: t.Node, scope: _Scope, leaves: Sequence[_Leaf]) -> dict[_Leaf, list[t.Node]]:
        """By leaf, the conditions under which its term is taken: with stages that find it out."""
        best = self.stage("best", node, scope)
        taken: dict[_Leaf, list[t.Node]] = {leaf: [] for leaf in leaves}
        if len(leaves) > 1:
            numbers: dict[_Leaf, t.Node] = {leaf: t.Number(number) for number, leaf in enumerate(leaves)}
            branch = self.stage("branch", self.told(node, scope, best, numbers, []), scope)
            taken = {leaf: [self.is_round(branch, numbers[leaf], scope, leaf)] for leaf in leaves}
        for leaf in leaves:
            for loop in leaf.rivals:
                first = self.stage("first", self.told(node, scope, best, {leaf: loop}, taken[leaf]), scope)
                taken[leaf] = [*taken[leaf], self.is_round(first, loop, scope, leaf)]
        return taken

    def told(
        self, node: t.Node, scope: _Scope, best: str, numbers: Mapping[_Leaf, t.Node], known: Sequence[t.Node]
    ) -> t.Node:
        """The sum of the codes of numbers of terms that attain the best value, under conditions."""

        def term(value: t.Node, inner: _Scope) -> t.Node:
            leaf = inner.leaf
            if leaf not in numbers:
                return t.Zero()
            name = self.fresh("x")
            # Of numbers with a NaN the best is NaN, which equals none of them.
            is_nan = t.Apply("not_equal", (t.Var(name), t.Var(name)))
            is_best = t.Apply("logical_or", (t.Apply("equal", (t.Var(name), _at(best, scope, leaf))), is_nan))
            return _over(name, value, _when([is_best, *known], self.code(numbers[leaf])))

        return _with_terms(node, scope, term)

    def stage(self, name: str, node: t.Node, scope: _Scope) -> str:
        """The name of a tensor that is computed first, in the semiring: with the keys of the loops outside."""
        name = self.fresh(name)
        inputs = {**self.inputs, **{stage.name: stage.program.type for stage in self.stages}}
        self.stages.append(Stage(name, Program(scope.whole(node), inputs, is_guarded=True), self.record))
        return name

    def code(self, number: t.Node) -> t.Node:
        """A number that stands for an index, so that the sum of the semiring takes that of the least one. No zero of a
        semiring, and none of real numbers, is one."""
        above = t.Apply("add", (t.Apply("cast", (number,)), t.Number(1.0)))
        return above if self.kind == "least" else t.Apply("divide", (t.Number(1.0), above))

    def is_round(self, name: str, number: t.Node, scope: _Scope, leaf: _Leaf) -> t.Node:
        return t.Apply("equal", (self.code(number), _at(name, scope, leaf)))

    def log_of_sum(self, node: t.Node, scope: _Scope) -> t.Node:
        whole = self.stage("whole", node, scope)

        def relative(leaf: _Leaf, real: t.Node) -> t.Node:
            name, at = self.fresh("x"), _at(whole, scope, leaf)
            is_some = t.Apply("not_equal", (t.Number(float(self.record.zero)), at))
            # Where all terms are zero, each has a term here: under `jax.jit` entries do not depend on values.
            share = t.Apply("where", (is_some, t.Apply("exp_of_difference", (t.Var(name), at)), t.Number(1.0)))
            return _over(name, real, share)

        total = self.fresh("s")
        of = check(node, scope.types)
        summed = self.converted(node, scope, relative)

        def logarithms(part: t.Node, order: int, at: t.Node) -> t.Node:
            if not order:
                name = self.fresh("x")
                return _over(name, part, t.Apply("add", (t.Apply("log", (t.Var(name),)), at)))
            key, value = self.fresh("k"), self.fresh("a")
            below = logarithms(t.Var(value), order - 1, t.Lookup(at, t.Var(key)))
            return t.Sum(key, value, part, t.Singleton(t.Var(key), below, True))

        at = _at(whole, scope, _Leaf())
        return t.Let(total, summed, logarithms(t.Var(total), of.order if of else 0, at))

    # Numbers

    def term(self, node: t.Node, scope: _Scope) -> t.Node:
        """A term of a sum in real numbers, with a value where it has one."""
        around: list[Around] = []
        found = self.number(node, scope, around)
        for each in reversed(around):
            found = each(found)
        return found

    def number(self, node: t.Node, scope: _Scope, around: list[Around]) -> t.Node:
        match node:
            case t.One():
                return t.Number(float(self.record.one))
            case t.Multiply() if self.multiplies:
                return node.with_children(tuple(self.number(child, scope, around) for child in node.children))
            case t.Multiply():
                operands = []
                for child in node.children:
                    real = self.number(child, scope, around)
                    if not is_present(child, scope.present):
                        name = self.fresh("x")
                        around.append(lambda inner, name=name, real=real: _over(name, real, inner))
                        real = t.Var(name)
                    operands.append(real)
                lets, (found,) = from_scalars((self.product,), dict(zip(self.factors, operands)), self.fresh)
                around.append(lambda inner: bound(lets, inner))
                return self.zero_by_a_factor(found, operands, around)
            case t.Apply():
                lets = []
                found = self.operand(node, scope, lets)
                around.append(lambda inner: bound(lets, inner))
                return found
        return node

    def zero_by_a_factor(self, product: t.Node, factors: Sequence[t.Node], around: list[Around]) -> t.Node:
        """The product, and where it is no number, the zero of the semiring if a factor is: -inf + NaN is -inf."""
        name, zero = self.fresh("p"), t.Number(float(self.record.zero))
        around.append(lambda inner: t.Let(name, product, inner))
        found = t.Var(name)
        is_zero = t.Apply("logical_or", tuple(t.Apply("equal", (factor, zero)) for factor in factors))
        is_none = t.Apply("logical_and", (t.Apply("not_equal", (found, found)), is_zero))
        return t.Apply("where", (is_none, zero, found))

    def operand(self, node: t.Node, scope: _Scope, lets: Bindings) -> t.Node:
        """What stands in a function: a number that has no value is the zero of the semiring."""
        part = guarded_part(node)
        if part is not None and (of := check(part, scope.types)) is not None and of.order:
            return t.Apply("less", (t.Number(0.5), self.count(part, of.order)))
        if isinstance(node, t.Apply):
            return node.with_children(tuple(self.operand(child, scope, lets) for child in node.operands))
        of = check(node, scope.types)
        if of is not None and of.element != "real":
            return node
        if isinstance(node, t.Number):
            return node
        real = self.term(node, scope)
        if is_present(node, scope.present) or not self.record.zero:
            if real == node or isinstance(real, t.Number):
                return real
            name = self.fresh("t")
            lets.append((name, real))
            return t.Var(name)
        if isinstance(node, t.Zero):
            return t.Number(float(self.record.zero))
        name, value = self.fresh("t"), self.fresh("t")
        lets += [(name, real), (value, self.total(t.Var(name)))]
        return t.Var(value)

    def count(self, node: t.Node, order: int) -> t.Node:
        """How many entries of a tensor are no zero of the semiring."""
        if not order:
            is_zero = t.Apply("equal", (node, t.Number(float(self.record.zero))))
            return t.Apply("where", (is_zero, t.Number(0.0), t.Number(1.0)))
        value = self.fresh("a")
        return t.Sum("_", value, node, self.count(t.Var(value), order - 1))

    def total(self, node: t.Var) -> t.Node:
        """A number that is the zero of the semiring where it has no value."""
        zero = float(self.record.zero)
        if not zero:
            return node
        has_value = t.Apply("less", (t.Number(0.5), _over("_", node, t.Number(1.0))))
        return t.Apply("where", (has_value, node, t.Number(zero)))


def _with_terms(
    node: t.Node,
    scope: _Scope,
    change: Change,
    value: Change = lambda node, scope: node,
    condition: Callable[[t.Node, _Scope, Bindings], t.Node] = lambda node, scope, lets: node,
) -> t.Node:
    """A sum with other terms, values of names and conditions; conditions may have names bound around them."""

    def inside(node: t.Node, scope: _Scope) -> t.Node:
        return _with_terms(node, scope, change, value, condition)

    match node:
        case t.Let():
            return replace(node, value=value(node.value, scope), body=inside(node.body, scope.let(node)))
        case t.Sum():
            return replace(node, body=inside(node.body, scope.loop(node)))
        case t.If():
            lets: Bindings = []
            made = condition(node.condition, scope, lets)
            return bound(lets, replace(node, condition=made, body=inside(node.body, scope.when(node))))
        case t.Add():
            leaf = scope.leaf
            scopes = (replace(scope, leaf=replace(leaf, path=(*leaf.path, side))) for side in (0, 1))
            return node.with_children(tuple(map(inside, node.children, scopes)))
        case t.Singleton():
            leaf = replace(scope.leaf, keys=(*scope.leaf.keys, node.key))
            return replace(node, value=inside(node.value, replace(scope, leaf=leaf)))
        case t.Zero():
            return node
    return change(node, scope)


def _at(name: str, scope: _Scope, leaf: _Leaf) -> t.Node:
    found: t.Node = t.Var(name)
    for key in (*scope.outer, *leaf.keys):
        found = t.Lookup(found, key)
    return found


def _over(name: str, value: t.Node, body: t.Node) -> t.Node:
    """An expression with a number of that name, where it has a value."""
    return t.Sum("_", name, t.Singleton(_ZERO_KEY, value), body)


def _when(conditions: Sequence[t.Node], body: t.Node) -> t.Node:
    for condition in reversed(conditions):
        body = t.If(condition, body)
    return body
