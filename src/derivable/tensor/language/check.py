"""The validator of SDQLite: which type every expression has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from derivable.algebra.expr.operations import OPERATIONS
from derivable.core.diagnostics import BindingError, DerivableError, TypeMismatchError
from derivable.core.registry import suggestion
from derivable.tensor.language import nodes as t
from derivable.tensor.language.linearity import guarded_part
from derivable.tensor.language.types import BOOL, INT, REAL, Type, array, product

# None is the type of a zero whose order nothing says.
Types = Mapping[str, Type | None]
_CAST = "`real(i)` is the real number of an integer"
_TRUTH = "`where(c, 1.0, 0.0)` is the number of a condition"
_XOR = "`^` is either of two conditions; a power is `a ** b`"


def check(node: t.Node, types: Types) -> Type | None:
    """The type of an expression from those of its free variables; None if it is a zero of any order.

    Raises BindingError for a name that nothing binds, and TypeMismatchError for parts that do not fit, with the place.
    """
    found: list[Type | None] = []
    for child in node.children:
        found.append(check(child, scope(node, found, types)))
    return type_from(node, found, types)


def scope(node: t.Node, found: Sequence[Type | None], types: Types) -> Types:
    """The types of the names that a part of an expression sees, from those of the parts before it."""
    if len(found) == 1 and isinstance(node, t.Let):
        return {**types, node.name: found[0]}
    if len(found) == 1 and isinstance(node, t.Sum):
        over = found[0]
        if over is not None and over.is_scalar:
            raise _mismatch(f"a sum runs over the entries of a tensor, and this is {over}", node.range)
        return {**types, node.key: INT, node.value: over and over.inner}
    return types


def type_from(node: t.Node, found: Sequence[Type | None], types: Types) -> Type | None:
    """The type of an expression from those of its parts. Raises as `check`."""
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
            return _real(node.body, found[1], "a sum adds reals or tensors of them")
        case t.Singleton():
            _expect(INT, node.key, found[0], "a key")
            value = _real(node.value, found[1], "a dictionary holds reals or tensors of them")
            return value and Type(value.element, ("int", *value.indices))
        case t.Lookup():
            over = found[0]
            if over is not None and over.is_scalar:
                raise _mismatch(
                    f"{over} is looked up in as if it were a tensor",
                    node,
                    hint="a tensor of order n takes at most n keys",
                )
            _expect(INT, node.key, found[1], "a key")
            return over and over.inner
        case t.Let():
            return found[1]
        case t.If():
            _expect(BOOL, node.condition, found[0], "a condition")
            return _real(node.body, found[1], "`if` gives a real or a tensor, and zero otherwise")
        case t.Add():
            left, right = _reals(node, found, "`+` adds reals or tensors of them")
            if left is None or right is None:
                return left or right
            if left.order != right.order:
                raise _mismatch(f"{left} and {right} do not add up", node, "both sides of `+` have the same order")
            return left
        case t.Multiply():
            left, right = _reals(node, found, "`*` multiplies reals or tensors of them")
            return left and right and product(left, right)
        case t.Apply():
            return _applied(node, found)
        case t.Range():
            _expect(INT, node.start, found[0], "the start of a range")
            _expect(INT, node.stop, found[1], "the stop of a range")
            return array("int")
        case t.SubArray():
            over = found[0]
            if over is None or over.indices != ("dense_int",):
                raise _mismatch(f"a part of an array is taken, and this is {over or 'zero'}", node.array)
            _expect(INT, node.start, found[1], "the start of a part of an array")
            _expect(INT, node.stop, found[2], "the stop of a part of an array")
            return over
    raise AssertionError(node)


def type_of(node: t.Node, types: Types) -> Type:
    """As `check`; a zero of any order is a scalar."""
    return check(node, types) or REAL


def _mismatch(message: str, node: t.Node, hint: str | None = None) -> DerivableError:
    return TypeMismatchError(message, span=node.span, hint=hint)


def _expect(expected: Type, node: t.Node, found: Type | None, what: str) -> None:
    if found != expected:
        raise _mismatch(f"{what} is {expected}, and `{node}` is {found or 'zero'}", node)


def _real(node: t.Node, found: Type | None, rule: str) -> Type | None:
    if found is not None and found.element != "real":
        hints = {"int": _CAST, "bool": "write `if condition then 1.0`"}
        raise _mismatch(f"{rule}, and `{node}` is {found}", node, hints[found.element])
    return found


def _reals(node: t.Node, found: Sequence[Type | None], rule: str) -> tuple[Type | None, ...]:
    return tuple(_real(part, of, rule) for part, of in zip(node.children, found))


def _of_entries(node: t.Apply) -> t.Apply:
    """The operation on entries `a`, `b`, ..."""
    return replace(node, operands=tuple(map(t.Var, "abc"[: len(node.operands)])), span=None)


def _applied(node: t.Apply, types: Sequence[Type | None]) -> Type:
    row = OPERATIONS[node.operation]
    if guarded_part(node) is not None and (types[0] is None or types[0].element == "real"):
        return BOOL
    found = [of or REAL for of in types]
    for operand, of in zip(node.operands, found):
        if not of.is_scalar:
            raise _mismatch(
                f"`{node.operation}` takes scalars, and `{operand}` is {of}",
                operand,
                f"apply it to every entry: `sum(<i, a> in X) {{ i -> {_of_entries(node)} }}`",
            )
    if len(found) != row.arity:
        raise _mismatch(
            f"`{node.operation}` takes {row.arity} operand{'s' * (row.arity > 1)}, and has {len(found)}", node
        )
    if row.rule == "cast":
        return REAL
    if row.rule == "where":
        if found[0] != BOOL or found[1] != found[2]:
            raise _mismatch("`where` takes a condition and two scalars of one type", node)
        return found[1]
    wanted = {"logical": BOOL, "float": REAL, "bits": INT}.get(row.rule, found[0])
    for operand, of in zip(node.operands, found):
        if of != wanted or (row.rule == "arithmetic" and of == BOOL):
            raise _mismatch(
                f"`{node.operation}` of {' and '.join(map(str, found))} means nothing",
                operand,
                _XOR
                if node.operation == "logical_xor"
                else _CAST
                if INT in found
                else _TRUTH
                if BOOL in found
                else None,
            )
    return BOOL if row.rule in ("comparison", "logical") else wanted
