"""A-normal form: every operand is a name or a constant, and what is computed twice has a name.

Printed form of `sum(<i, a> in A) exp(a * X(i)) * X(i)`:

    sum(<i, a> in A)
      let t = X(i) in
      let t_1 = a * t in
      let t_2 = exp(t_1) in
      t_2 * t

Source: section 5.1 of Shaikhha, Huot and Hashemian, nabla-SD (2023); Flanagan et al., The essence of compiling with
continuations (1993). Ranges of storage formats stay where they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce

from derivable.algebra import expr
from derivable.algebra.expr.nodes import in_order
from derivable.core.diagnostics import UnsupportedError
from derivable.core.names import FreshNames
from derivable.tensor.analysis.sparsity import ATOMS
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import names_in, unique_names
from derivable.tensor.language.linearity import conjuncts, guarded_part

Bindings = list[tuple[str, t.Node]]


def to_anf(node: t.Node, *, shares: bool = True) -> t.Node:
    """The same expression in A-normal form, with unique names.

    Equal operations in the same loops and under the same conditions are computed once. The bodies of `sum` and of `if`
    have bindings of their own.

    shares  whether equal operations are; else each has a name of its own
    """
    node = unique_names(node)
    return _Anf(FreshNames(names_in(node)), shares).scope(node, {}, {})


def bound(bindings: Bindings, body: t.Node) -> t.Node:
    """`let`s around an expression, the first outermost."""
    for name, value in reversed(bindings):
        body = t.Let(name, value, body)
    return body


def taken_apart(node: t.Node) -> tuple[Bindings, t.Node]:
    """The inverse of `bound`."""
    bindings: Bindings = []
    while isinstance(node, t.Let):
        bindings.append((node.name, node.value))
        node = node.body
    return bindings, node


def from_scalars(
    exprs: Sequence[expr.Expr], names: Mapping[expr.Expr, t.Node], fresh: Callable[[str], str], *, least_uses: int = 1
) -> tuple[Bindings, list[t.Node]]:
    """(bindings, what the expressions are in them), of scalar expressions whose arguments have names.

    least_uses  of an operation that gets a name; others stand where they are used

    Raises UnsupportedError for a cast to a type that the language does not have.
    """
    done, bindings = dict(names), []
    order = in_order(exprs, done)
    uses = Counter([*exprs, *(operand for node in order for operand in node.operands)])
    for node in order:
        if isinstance(node, expr.Constant):
            kind = {"bool": bool, "int64": int}.get(node.dtype, float)
            done[node] = t.Number(kind(node.value))
            continue
        assert isinstance(node, expr.Apply)
        made = _operation(node, tuple(done[operand] for operand in node.operands))
        if uses[node] >= least_uses:
            bindings.append((fresh("t"), made))
            made = t.Var(bindings[-1][0])
        done[node] = made
    return bindings, [done[node] for node in exprs]


def _operation(node: expr.Apply, operands: tuple[t.Node, ...]) -> t.Node:
    if node.operation == "cast" and node.dtype != "float64":
        raise UnsupportedError(f"a cast to {node.dtype} is not in the language", hint="numbers are float64 or int64")
    if node.dtype == "float64" and node.operation in ("add", "multiply"):
        return (t.Add if node.operation == "add" else t.Multiply)(*operands)
    return t.Apply(node.operation, operands)


class _Anf:
    """`names` are atoms in the place of names; `known` says which name has a value."""

    def __init__(self, fresh: FreshNames, shares: bool):
        self.fresh = fresh
        self.shares = shares

    def scope(self, node: t.Node, names: dict[str, t.Node], known: dict[t.Node, t.Node]) -> t.Node:
        bindings: Bindings = []
        tail = self.operation(node, bindings, dict(names), dict(known))
        return bound(bindings, tail)

    def operation(
        self, node: t.Node, bindings: Bindings, names: dict[str, t.Node], known: dict[t.Node, t.Node]
    ) -> t.Node:
        while isinstance(node, t.Let):
            value = self.operation(node.value, bindings, names, known)
            names[node.name] = known.get(value, value)
            if not isinstance(names[node.name], ATOMS):
                bindings.append((node.name, value))
                names[node.name] = self.called(value, node.name, known)
            node = node.body
        if isinstance(node, t.Var):
            return names.get(node.name, node)
        if isinstance(node, t.Sum):
            over = node.range
            if isinstance(over, t.PHYSICAL):
                over = over.with_children(tuple(self.atom(child, bindings, names, known) for child in over.children))
            else:
                over = self.atom(over, bindings, names, known)
            return replace(node, range=over, body=self.scope(node.body, names, known))
        if isinstance(node, t.If):
            condition = self.condition(node.condition, bindings, names, known)
            return replace(node, condition=condition, body=self.scope(node.body, names, known))
        return node.with_children(tuple(self.atom(child, bindings, names, known) for child in node.children))

    def condition(
        self, node: t.Node, bindings: Bindings, names: dict[str, t.Node], known: dict[t.Node, t.Node]
    ) -> t.Node:
        """A condition as a name; guards stay what they are, so that it is seen what they leave out."""
        terms = conjuncts(node)
        if not any(map(guarded_part, terms)):
            return self.atom(node, bindings, names, known)
        found = []
        for term in terms:
            part = guarded_part(term)
            if part is None:
                found.append(self.atom(term, bindings, names, known))
            else:
                found.append(term.with_children((self.atom(part, bindings, names, known), term.children[1])))
        return reduce(lambda left, right: t.Apply("logical_and", (left, right)), found)

    def atom(self, node: t.Node, bindings: Bindings, names: dict[str, t.Node], known: dict[t.Node, t.Node]) -> t.Node:
        found = self.operation(node, bindings, names, known)
        found = known.get(found, found)
        if isinstance(found, ATOMS):
            return found
        name = self.fresh("t")
        bindings.append((name, found))
        return self.called(found, name, known)

    def called(self, value: t.Node, name: str, known: dict[t.Node, t.Node]) -> t.Node:
        if self.shares:
            known[value] = t.Var(name)
        return t.Var(name)
