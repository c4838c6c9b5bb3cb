"""Forward mode: the tangent of an expression from the tangents of its free variables.

A tangent may have more axes than what it belongs to, behind those: the axes of what is differentiated by. If it has
none this is the scalar forward mode of figure 5, and else the tensorised one of figure 6; the rules are the same.
Nothing is computed twice: operands have names, and a tangent stands in the bindings of the expression itself.

    sum(<j, a> in r) let t = X(j) in a * t          by r and X

    sum(<j, a> in r)
      let a_dot = r_dot(j) in
      let t = X(j) in
      let t_dot = X_dot(j) in
      a * t_dot + a_dot * t

A sum runs over the entries that are there, so its tangent has no others.

Source: section 4 of Shaikhha, Huot and Hashemian, nabla-SD (2023). Their derivatives of unary operations are here the
partial derivatives in the table of `algebra.expr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from derivable.algebra import expr
from derivable.algebra.expr.operations import OPERATIONS
from derivable.core.diagnostics import UnsupportedError
from derivable.core.names import FreshNames
from derivable.tensor.analysis.anf import bound, from_scalars, taken_apart
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import free_variables, names_in

Tangents = Mapping[str, t.Node]


def differentiate(node: t.Node, tangents: Tangents, semiring: str = "real") -> t.Node:
    """The tangent of an expression.

    node      in A-normal form, with products of scalars only (`normalise.multiply_scalars`)
    tangents  {free variable: expression}; those of others are zero. All have the same axes behind those of the variable
    semiring  in which it will run. In one that is not real the tangent is the formal derivative, by the rules of sums
              and products

    Raises UnsupportedError for functions of real numbers in another semiring.
    """
    taken = names_in(node).union(*map(free_variables, tangents.values()))
    return _Forward(FreshNames(taken), semiring == "real").tangent(node, dict(tangents))


class _Forward:
    def __init__(self, fresh: FreshNames, is_real: bool):
        self.fresh = fresh
        self.is_real = is_real

    def tangent(self, node: t.Node, tangents: dict[str, t.Node], result: str | None = None) -> t.Node:
        """`result` is the name of the expression, if it has one."""
        match node:
            case t.Var():
                return tangents.get(node.name, t.Zero())
            case t.Let():
                return self.scope(node, tangents)
            case t.Sum():
                return self.sum(node, tangents)
            case t.If():
                return _if(node.condition, self.tangent(node.body, tangents))
            case t.Lookup():
                tangent = self.tangent(node.tensor, tangents)
                return tangent if isinstance(tangent, t.Zero) else t.Lookup(tangent, node.key)
            case t.Singleton():
                tangent = self.tangent(node.value, tangents)
                return tangent if isinstance(tangent, t.Zero) else replace(node, value=tangent)
            case t.Add():
                return total(self.tangent(node.left, tangents), self.tangent(node.right, tangents))
            case t.Multiply():
                left, right = self.tangent(node.left, tangents), self.tangent(node.right, tangents)
                return total(_product(node.left, right), _product(left, node.right))
            case t.Apply():
                return self.applied(node, [self.tangent(operand, tangents) for operand in node.operands], result)
        return t.Zero()

    def scope(self, node: t.Node, tangents: dict[str, t.Node]) -> t.Node:
        bindings, tail = taken_apart(node)
        inner, found = dict(tangents), []
        for name, value in bindings:
            found.append((name, value))
            tangent = self.tangent(value, inner, name)
            inner.pop(name, None)
            if not isinstance(tangent, t.Zero):
                dot = self.fresh(f"{name}_dot")
                found.append((dot, tangent))
                inner[name] = t.Var(dot)
        tangent = self.tangent(tail, inner)
        return tangent if isinstance(tangent, t.Zero) else bound(found, tangent)

    def sum(self, node: t.Sum, tangents: dict[str, t.Node]) -> t.Node:
        over = self.tangent(node.range, tangents)
        if isinstance(over, t.Zero) or node.value == "_":
            body = self.tangent(node.body, tangents)
            return body if isinstance(body, t.Zero) else replace(node, body=body)
        dot = self.fresh(f"{node.value}_dot")
        body = self.tangent(node.body, {**tangents, node.value: t.Var(dot)})
        if isinstance(body, t.Zero):
            return body
        key = node.key if node.key != "_" else self.fresh("k")
        return replace(node, key=key, body=t.Let(dot, t.Lookup(over, t.Var(key)), body))

    def applied(self, node: t.Apply, inner: list[t.Node], result: str | None) -> t.Node:
        if all(isinstance(tangent, t.Zero) for tangent in inner):
            return t.Zero()
        if not self.is_real:
            raise UnsupportedError(
                f"`{node}` has a derivative in the semiring of real numbers only",
                hint="without functions of numbers, sums and products have formal derivatives in every semiring",
            )
        if node.operation == "where":
            condition, yes, no = node.operands[0], inner[1], inner[2]
            return total(_if(condition, yes), _if(t.Apply("logical_not", (condition,)), no))
        row = OPERATIONS[node.operation]
        if row.partials is None:
            return t.Zero()
        bindings: list[tuple[str, t.Node]] = []
        if result is None:
            result = self.fresh("t")
            bindings.append((result, node))
        arguments = [expr.Argument(place) for place in range(row.arity + 1)]
        wanted = [place for place, tangent in enumerate(inner) if not isinstance(tangent, t.Zero)]
        partials = row.partials(arguments[-1], *arguments[:-1])
        partials = expr.simplify([partials[place] for place in wanted])
        operands = (*node.operands, t.Var(result))
        more, slopes = from_scalars(partials, dict(zip(arguments, operands)), self.fresh)
        terms = [_product(_constant(slope), inner[place]) for place, slope in zip(wanted, slopes)]
        tangent = total(*terms)
        return tangent if isinstance(tangent, t.Zero) else bound(bindings + more, tangent)


def _constant(node: t.Node) -> t.Node:
    """The constants 0 and 1 as the zero and the one of the semiring."""
    known: dict[t.Node, t.Node] = {t.Number(0.0): t.Zero(), t.Number(1.0): t.One()}
    return known.get(node, node)


def total(*terms: t.Node) -> t.Node:
    """The sum of expressions, without those that are zero."""
    found: t.Node = t.Zero()
    for term in terms:
        found = term if isinstance(found, t.Zero) else found if isinstance(term, t.Zero) else t.Add(found, term)
    return found


def _product(left: t.Node, right: t.Node) -> t.Node:
    if isinstance(left, t.Zero) or isinstance(right, t.Zero):
        return t.Zero()
    return right if isinstance(left, t.One) else left if isinstance(right, t.One) else t.Multiply(left, right)


def _if(condition: t.Node, body: t.Node) -> t.Node:
    return body if isinstance(body, t.Zero) else t.If(condition, body)
