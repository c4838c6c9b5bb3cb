"""The validator of SDQLite: which type every expression has."""

from __future__ import annotations

from collections.abc import Mapping

from derivable.algebra.expr.operations import OPERATIONS
from derivable.core.diagnostics import BindingError, DerivableError, TypeMismatchError
from derivable.core.registry import suggestion
from derivable.tensor import nodes as t
from derivable.tensor.types import BOOL, INT, REAL, Type, array, product

# None is the type of a zero whose order nothing says.
Types = Mapping[str, Type | None]


def check(node: t.Node, types: Types) -> Type | None:
    """The type of an expression from those of its free variables; None if it is a zero of any order.

    Raises BindingError for a name that nothing binds, and TypeMismatchError for parts that do not fit, with the place.
    """
    match node:
        case t.Var():
            if node.name not in types:
                raise BindingError(
                    f"nothing is called `{node.name}`",
                    span=node.span,
                    hint=suggestion(node.name, types, f"known are {', '.join(types) or 'no names'}"),
                )
            return types[node.name]
        case t.Number():
            return BOOL if isinstance(node.value, bool) else INT if isinstance(node.value, int) else REAL
        case t.Zero():
            return None
        case t.One():
            return REAL
        case t.Sum():
            over = check(node.range, types)
            if over is not None and over.is_scalar:
                raise _mismatch(f"a sum runs over the entries of a tensor, and this is {over}", node.range)
            inner = {**types, node.key: INT, node.value: over and over.inner}
            return _real(node.body, inner, "a sum adds reals or tensors of them")
        case t.Singleton():
            _expect(INT, node.key, types, "a key")
            value = _real(node.value, types, "a dictionary holds reals or tensors of them")
            return value and Type(value.element, ("int", *value.indices))
        case t.Lookup():
            over = check(node.tensor, types)
            if over is not None and over.is_scalar:
                raise _mismatch(
                    f"{over} is looked up in as if it were a tensor",
                    node,
                    hint="a tensor of order n takes at most n keys",
                )
            _expect(INT, node.key, types, "a key")
            return over and over.inner
        case t.Let():
            return check(node.body, {**types, node.name: check(node.value, types)})
        case t.If():
            _expect(BOOL, node.condition, types, "a condition")
            return _real(node.body, types, "`if` gives a real or a tensor, and zero otherwise")
        case t.Add():
            left, right = (_real(part, types, "`+` adds reals or tensors of them") for part in node.children)
            if left is None or right is None:
                return left or right
            if left.order != right.order:
                raise _mismatch(f"{left} and {right} do not add up", node, "both sides of `+` have the same order")
            return left
        case t.Multiply():
            left, right = (_real(part, types, "`*` multiplies reals or tensors of them") for part in node.children)
            return left and right and product(left, right)
        case t.Apply():
            return _applied(node, types)
        case t.Range():
            _expect(INT, node.start, types, "the start of a range")
            _expect(INT, node.stop, types, "the stop of a range")
            return array("int")
        case t.SubArray():
            over = check(node.array, types)
            if over is None or over.indices != ("dense_int",):
                raise _mismatch(f"a part of an array is taken, and this is {over}", node.array)
            _expect(INT, node.start, types, "the start of a part of an array")
            _expect(INT, node.stop, types, "the stop of a part of an array")
            return over
    raise AssertionError(node)


def type_of(node: t.Node, types: Types) -> Type:
    """As `check`; a zero of any order is a scalar."""
    return check(node, types) or REAL


def _mismatch(message: str, node: t.Node, hint: str | None = None) -> DerivableError:
    return TypeMismatchError(message, span=node.span, hint=hint)


def _expect(expected: Type, node: t.Node, types: Types, what: str) -> None:
    found = check(node, types)
    if found != expected:
        raise _mismatch(f"{what} is {expected}, and `{node}` is {found or 'zero'}", node)


def _real(node: t.Node, types: Types, rule: str) -> Type | None:
    found = check(node, types)
    if found is not None and found.element != "real":
        hints = {"int": "`real(i)` is the real number of an integer", "bool": "write `if condition then 1.0`"}
        raise _mismatch(f"{rule}, and `{node}` is {found}", node, hints[found.element])
    return found


def _applied(node: t.Apply, types: Types) -> Type:
    row = OPERATIONS[node.operation]
    found: list[Type] = []
    for operand in node.operands:
        of = check(operand, types) or REAL
        if not of.is_scalar:
            raise _mismatch(
                f"`{node.operation}` takes scalars, and `{operand}` is {of}",
                operand,
                f"apply it to every entry: `sum(<i, a> in x) {{ i -> {node.operation}(a) }}`",
            )
        found.append(of)
    if len(found) != row.arity:
        raise _mismatch(f"`{node.operation}` takes {row.arity} operands, and has {len(found)}", node)
    if row.rule == "cast":
        return REAL
    if row.rule == "where":
        if found[0] != BOOL or found[1] != found[2]:
            raise _mismatch("`where` takes a condition and two scalars of one type", node)
        return found[1]
    wanted = {"logical": BOOL, "float": REAL}.get(row.rule, found[0])
    for operand, of in zip(node.operands, found):
        if of != wanted or (row.rule == "arithmetic" and of == BOOL):
            raise _mismatch(
                f"`{node.operation}` of {' and '.join(map(str, found))} means nothing",
                operand,
                "`real(i)` is the real number of an integer" if INT in found else None,
            )
    return BOOL if row.rule in ("comparison", "logical") else wanted
