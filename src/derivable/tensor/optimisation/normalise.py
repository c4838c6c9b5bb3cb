"""Expressions in the form that loops are made from.

Only scalars are multiplied, singletons stand outside of products and conditions outside of singletons, what is
computed and then only run over or looked up in is not built, and equalities with the key of a loop are lookups.
Each rule is a function of one node, of which `None` means that it does not apply; the first lines of its text are what
it does, and the last ones under which condition. They hold in every semiring, and change no pattern: an entry that
happens to be zero stays one.

Source: figure 9 of Shaikhha, Huot and Hashemian, nabla-SD (2023), second group, and the fusion of Schleich et al.,
Optimizing tensor programs on flexible storage (2022).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace

from derivable.algebra.expr.operations import OPERATIONS
from derivable.core.names import FreshNames
from derivable.tensor.analysis.sparsity import ATOMS, propagate
from derivable.tensor.language import nodes as t
from derivable.tensor.language.binding import free_variables, names_in, renamed, replaced, substitute
from derivable.tensor.language.check import Types, check
from derivable.tensor.language.linearity import conjuncts, is_linear, is_present, vanishes
from derivable.tensor.language.types import INT, Type

_MOST_ROUNDS = 60


@dataclass
class Context:
    """What a rule may ask: the types of the names around a node, new names, which names are sizes of axes, and the
    loops around it, the innermost first."""

    types: Types
    fresh: Callable[[str], str]
    sizes: Set[str] = field(default_factory=frozenset)
    loops: tuple[t.Sum, ...] = ()
    # What is in normal form already, by identity: parts of it stand in what rules make of it.
    done: dict[int, t.Node] = field(default_factory=dict)

    def order(self, node: t.Node) -> int:
        found = check(node, self.types)
        return found.order if found else 0

    def present(self, over: t.Node, key: t.Node) -> t.Node | None:
        """The value at a key, if a loop around has it: there is an entry."""
        found = (loop.value for loop in self.loops if loop.range == over and t.Var(loop.key) == key)
        return next(map(t.Var, found), None)


Rule = Callable[[t.Node, Context], t.Node | None]


def normalise(node: t.Node, types: Mapping[str, Type], sizes: Set[str] = frozenset()) -> t.Node:
    """An expression with the same entries, by all rules.

    types  of the free variables
    sizes  names of those inputs that are sizes of axes, below which every index of these axes is
    """
    return rewrite(node, types, RULES, sizes)


def scalar_products(node: t.Node, types: Mapping[str, Type]) -> t.Node:
    """An expression with the same entries in which only scalars are multiplied; `forward` needs it."""
    return rewrite(node, types, (float_bindings, hoist_conditions, multiply_scalars))


def rewrite(node: t.Node, types: Types, rules: Sequence[Rule], sizes: Set[str] = frozenset()) -> t.Node:
    """Rules applied from the parts up, until none does."""
    node = propagate(node)
    for _ in range(_MOST_ROUNDS):
        fresh = FreshNames(names_in(node) | set(types))
        before, node = node, propagate(_rewritten(node, Context(types, fresh, sizes), rules))
        if node == before:
            break
    return renamed(node, FreshNames(free_variables(node)), is_short=True)


def _rewritten(node: t.Node, context: Context, rules: Sequence[Rule]) -> t.Node:
    while id(node) not in context.done:
        node = _in_children(node, context, rules)
        for rule in rules:
            found = rule(node, context)
            if found is not None:
                node = found
                break
        else:
            context.done[id(node)] = node
    return node


def _in_children(node: t.Node, context: Context, rules: Sequence[Rule]) -> t.Node:
    if not isinstance(node, (t.Let, t.Sum)):
        return node.with_children(tuple(_rewritten(child, context, rules) for child in node.children))
    outside = _rewritten(node.children[0], context, rules)
    over = check(outside, context.types)
    if isinstance(node, t.Let):
        inner = replace(context, types={**context.types, node.name: over})
    else:
        # Rules may use what nothing did.
        key, value = (
            context.fresh(base) if name == "_" else name for name, base in ((node.key, "k"), (node.value, "v"))
        )
        node = replace(node, key=key, value=value, range=outside)
        types = {**context.types, key: INT, value: over and over.inner}
        inner = replace(context, types=types, loops=(node, *context.loops))
    return node.with_children((outside, _rewritten(node.body, inner, rules)))


def _named(node: t.Node, context: Context, build: Callable[[t.Node], t.Node]) -> t.Node:
    """What `build` makes of an expression that it uses several times, or in a loop."""
    if isinstance(node, ATOMS):
        return build(node)
    name = context.fresh("s")
    return t.Let(name, node, build(t.Var(name)))


def _if(conditions: Sequence[t.Node], body: t.Node) -> t.Node:
    if not conditions:
        return body
    whole, *others = conditions
    for other in others:
        whole = t.Apply("logical_and", (whole, other))
    return t.If(whole, body)


# Bindings


def float_bindings(node: t.Node, context: Context) -> t.Node | None:
    """f(let x = e in b) ~> let x = e in f(b)

    where f does not bind, and for ranges of sums and values of bindings.
    """
    if isinstance(node, (t.Sum, t.Let)):
        inside, body = node.children
        if isinstance(inside, t.Let):
            return replace(inside, body=node.with_children((inside.body, body)))
        return None
    if isinstance(node, (t.Multiply, t.Apply, t.Lookup, t.Singleton)):
        for place, child in enumerate(node.children):
            if isinstance(child, t.Let):
                children = (*node.children[:place], child.body, *node.children[place + 1 :])
                return replace(child, body=node.with_children(children))
    return None


def hoist_bindings(node: t.Node, context: Context) -> t.Node | None:
    """sum(<i, a> in R) let x = e in b ~> let x = e in sum(<i, a> in R) b

    if e depends on neither i nor a.
    """
    if not isinstance(node, t.Sum) or not isinstance(node.body, t.Let):
        return None
    if {node.key, node.value} & free_variables(node.body.value):
        return None
    return replace(node.body, body=replace(node, body=node.body.body))


def inline_bindings(node: t.Node, context: Context) -> t.Node | None:
    """let x = e in b ~> b[x := e]

    if x is used once, and in no loop of b.
    """
    if not isinstance(node, t.Let):
        return None
    uses, is_looped = _uses(node.body, node.name)
    if uses > 1 or is_looped:
        return None
    return substitute(node.body, {node.name: node.value})


def _uses(node: t.Node, name: str) -> tuple[int, bool]:
    """(how often a name stands in an expression, whether it does in the body of a loop)"""
    if isinstance(node, t.Var):
        return int(node.name == name), False
    found = [_uses(child, name) for child in node.children]
    is_looped = any(looped for _, looped in found)
    if isinstance(node, t.Sum):
        is_looped = is_looped or found[1][0] > 0
    return sum(count for count, _ in found), is_looped


def inline_maps(node: t.Node, context: Context) -> t.Node | None:
    """let x = sum(<i, a> in R) { i -> e } in b ~> b[x := sum(<i, a> in R) { i -> e }]

    if R is a name or is looked up, e is a product of few scalars (or such a sum again) and has no entry where a has
    none: an entry costs no more where it is asked for. The same for { i -> e }.
    """
    if not isinstance(node, t.Let) or not (_is_cheap_map(node.value) or _is_cheap_singleton(node.value)):
        return None
    return _renewed(substitute(node.body, {node.name: node.value}), context)


def _is_cheap_singleton(node: t.Node) -> bool:
    return isinstance(node, t.Singleton) and (
        _is_cheap_singleton(node.value) or (isinstance(node.value, ATOMS) and isinstance(node.key, ATOMS))
    )


def _is_cheap_map(node: t.Node) -> bool:
    if not isinstance(node, t.Sum) or (value := _mapped(node)) is None:
        return False
    over = node.range
    while isinstance(over, t.Lookup):
        over = over.tensor
    if not isinstance(over, (t.Var, t.Range)):
        return False
    if not isinstance(over, t.Range) and not vanishes(node.body, {node.value}):
        return False
    parts = list(t.walk(value))
    return _is_cheap_map(value) or (
        len(parts) <= 12 and not any(isinstance(part, (t.Sum, t.Apply, t.Add)) for part in parts)
    )


def fuse_lookups(node: t.Node, context: Context) -> t.Node | None:
    """let x = sum(<i, a> in R) { i -> e } in sum(<k, b> in R) f(x(k)) ~> sum(<k, b> in R) f(e[i := k, a := b])

    if x is used nowhere else, and in no other loop.
    """
    if not isinstance(node, t.Let) or not isinstance(node.value, t.Sum) or not is_map(node.value):
        return None
    if _uses(node.body, node.name)[0] != 1 or isinstance(node.value.range, t.PHYSICAL):
        return None
    return _met(node.body, node.name, node.value)


def _met(node: t.Node, name: str, made: t.Sum) -> t.Node | None:
    """The expression with `made` run in the loop that looks its entries up; None if there is none outside of others."""
    if not isinstance(node, t.Sum):
        for place, child in enumerate(node.children):
            found = _met(child, name, made)
            if found is not None:
                return node.with_children((*node.children[:place], found, *node.children[place + 1 :]))
        return None
    if node.range != made.range:
        return None
    wanted = t.Lookup(t.Var(name), t.Var(node.key))
    uses = [part for part in _outside_of_loops(node.body) if part == wanted]
    if not uses:
        return None
    value = _unwrapped(made.body, lambda leaf: leaf.value)
    value = substitute(value, {made.key: t.Var(node.key), made.value: t.Var(node.value)})
    return replace(node, body=replaced(node.body, wanted, value))


def _outside_of_loops(node: t.Node) -> list[t.Node]:
    if isinstance(node, t.Sum):
        return _outside_of_loops(node.range)
    return [node, *(part for child in node.children for part in _outside_of_loops(child))]


def is_map(node: t.Sum) -> bool:
    """Whether a loop gives a value to its own key, and does nothing else."""
    return _mapped(node) is not None


def _mapped(node: t.Sum) -> t.Node | None:
    """The value that a loop gives to its own key, if that is all that it does."""
    body = node.body
    while isinstance(body, (t.Let, t.If)):
        body = body.body
    if not isinstance(body, t.Singleton):
        return None
    own = node.value if isinstance(node.range, t.Range) else node.key
    if isinstance(node.range, t.SubArray) or body.key != t.Var(own):
        return None
    return body.value


def _unwrapped(node: t.Node, leaf: Callable[[t.Singleton], t.Node]) -> t.Node:
    """What stands below bindings and conditions, replaced."""
    if isinstance(node, (t.Let, t.If)):
        return replace(node, body=_unwrapped(node.body, leaf))
    assert isinstance(node, t.Singleton)
    return leaf(node)


# Conditions


def hoist_conditions(node: t.Node, context: Context) -> t.Node | None:
    """f(if c then a) ~> if c then f(a)

    if f gives zero for zero and c depends on nothing that f binds. `if c then if d then a` is one condition, unless d
    looks something up.
    """
    match node:
        case t.Singleton(key, t.If(condition, body)):
            return t.If(condition, replace(node, value=body))
        case t.Lookup(t.If(condition, body), _):
            return t.If(condition, replace(node, tensor=body))
        case t.Multiply(t.If(condition, body), other):
            return t.If(condition, replace(node, left=body, right=other))
        case t.Multiply(other, t.If(condition, body)):
            return t.If(condition, replace(node, left=other, right=body))
        case t.If(condition, t.If(second, body)):
            if any(isinstance(part, (t.Lookup, t.Sum)) for part in t.walk(second)):
                return None
            return t.If(t.Apply("logical_and", (condition, second)), body)
        case t.Let(name, t.If(condition, value), body):
            return t.If(condition, replace(node, value=value)) if vanishes(body, {name}) else None
        case t.Let(name, _, t.If(condition, body)):
            return None if name in free_variables(condition) else t.If(condition, replace(node, body=body))
        case t.Sum(key, value, t.If(condition, over), _):
            return t.If(condition, replace(node, range=over))
        case t.Sum(key, value, _, t.If(condition, body)):
            outer, inner = [], []
            for term in conjuncts(condition):
                (inner if {key, value} & free_variables(term) else outer).append(term)
            return _if(outer, replace(node, body=_if(inner, body))) if outer else None
    return None


def decide_conditions(node: t.Node, context: Context) -> t.Node | None:
    """i == i ~> true, and 1 == 2 ~> false, for integers; where(false, a, b) ~> b; if true then a ~> a"""
    match node:
        case t.If(t.Number(value), body):
            return body if value else t.Zero()
        case t.Apply("where", (t.Number(value), yes, no)):
            return yes if value else no
        case t.Apply("equal", (t.Number(left), t.Number(right))):
            return t.Number(left == right)
        case t.Apply("equal", (left, right)) if left == right and check(left, context.types) == INT:
            return t.Number(True)
    return None


def fold_numbers(node: t.Node, context: Context) -> t.Node | None:
    """2.0 - 1.0 ~> 1.0, and a ** 1.0 ~> a"""
    match node:
        case t.Apply("subtract" | "add" | "multiply" as operation, (t.Number(left), t.Number(right))) if (
            type(left) is type(right) is float
        ):
            return t.Number(float(OPERATIONS[operation].meaning(left, right)))
        case t.Apply("power", (base, t.Number(1.0))):
            return base
    return None


def solve_equalities(node: t.Node, context: Context) -> t.Node | None:
    """sum(<i, a> in R) if i == k then e ~> let i = k in let a = R(i) in e

    if k depends on neither i nor a, and e has no entry where a has none, or k is the key of a loop around over R too.
    In a range (m:n) the condition is m <= k & k < n, and `e` may be anything.
    """
    if not isinstance(node, t.Sum) or not isinstance(node.body, t.If) or isinstance(node.range, t.SubArray):
        return None
    own = node.value if isinstance(node.range, t.Range) else node.key
    terms = conjuncts(node.body.condition)
    for place, term in enumerate(terms):
        key = _solved(term, own)
        if key is None or {node.key, node.value} & free_variables(key):
            continue
        body = _if(terms[:place] + terms[place + 1 :], node.body.body)
        return _entry(node, key, body, context)
    return None


def _solved(term: t.Node, name: str) -> t.Node | None:
    if isinstance(term, t.Apply) and term.operation == "equal":
        for side, other in (term.operands, term.operands[::-1]):
            if side == t.Var(name):
                return other
    return None


def _entry(node: t.Sum, key: t.Node, body: t.Node, context: Context) -> t.Node | None:
    """The only round of a loop, that at a key; None if it cannot be said without the loop."""
    if not isinstance(node.range, t.Range):
        known = context.present(node.range, key)
        if known is not None:
            return t.Let(node.key, key, t.Let(node.value, known, body))
        if not vanishes(body, {node.value}):
            return None
        return t.Let(node.key, key, t.Let(node.value, t.Lookup(node.range, t.Var(node.key)), body))
    start, stop, own = node.range.start, node.range.stop, t.Var(node.value)
    if node.key in free_variables(body):
        place = own if start == t.Number(0) else t.Apply("subtract", (own, start))
        body = t.Let(node.key, place, body)
    if not (start == t.Number(0) and isinstance(stop, t.Var) and stop.name in context.sizes):
        body = _if([t.Apply("less_equal", (start, own)), t.Apply("less", (own, stop))], body)
    return t.Let(node.value, key, body)


# Lookups and loops over what was made in place


def look_up(node: t.Node, context: Context) -> t.Node | None:
    """{ k -> e }(l) ~> if k == l then e, (e + f)(l) ~> e(l) + f(l), T(i) ~> a in sum(<i, a> in T), and
    (sum(<i, a> in R) { i -> e })(l) ~> let i = l in let a = R(i) in e

    the last under the conditions of `solve_equalities`.
    """
    if not isinstance(node, t.Lookup):
        return None
    match node.tensor:
        case t.Singleton(key, value):
            return t.If(t.Apply("equal", (key, node.key)), value)
        case t.Add(left, right):
            return _named(node.key, context, lambda key: t.Add(t.Lookup(left, key), t.Lookup(right, key)))
        case t.Sum() if _mapped(node.tensor) is not None:
            made = _renewed(node.tensor, context)
            assert isinstance(made, t.Sum)
            return _entry(made, node.key, _unwrapped(made.body, lambda leaf: leaf.value), context)
    return context.present(node.tensor, node.key)


def _renewed(node: t.Node, context: Context) -> t.Node:
    """With bound names of its own, so that it can stand beside what it was."""
    return renamed(node, context.fresh)


def fuse(node: t.Node, context: Context) -> t.Node | None:
    """sum(<k, v> in sum(<i, a> in R) { l -> e }) f ~> sum(<i, a> in R) let k = l in let v = e in f

    if f is linear in v, or if every l is another one and f has no entry where v has none, or e always has one. The
    same where R is made of more loops, of `+` (f is linear) and under conditions and bindings.
    """
    if not isinstance(node, t.Sum) or not isinstance(node.range, (t.Sum, t.Singleton, t.Add)):
        return None
    if not is_linear(node.body, {node.value}):
        leaf = _only(node.range)
        if leaf is None or not (vanishes(node.body, {node.value}) or is_present(leaf.value, _entries(node.range))):
            return None
    return _fused(node.range, node, context)


def _fused(made: t.Node, node: t.Sum, context: Context) -> t.Node:
    match made:
        case t.Zero():
            return made
        case t.Sum():
            return replace(made, body=_fused(made.body, node, context))
        case t.Let() | t.If():
            return replace(made, body=_fused(made.body, node, context))
        case t.Add():
            return t.Add(*(_fused(part, node, context) for part in made.children))
    copy = _renewed(replace(node, range=t.Zero()), context)
    assert isinstance(copy, t.Sum)
    if isinstance(made, t.Singleton):
        return t.Let(copy.key, made.key, t.Let(copy.value, made.value, copy.body))
    return replace(copy, range=made)


def _only(made: t.Node) -> t.Singleton | None:
    """The singleton that all entries come from, if each has its own key."""
    if isinstance(made, t.Singleton):
        return made
    if not isinstance(made, t.Sum):
        return None
    body = made.body
    while isinstance(body, (t.Let, t.If)):
        body = body.body
    if not isinstance(body, t.Singleton) or not (body.is_unique or _mapped(made) is not None):
        return None
    return body


def _entries(made: t.Node) -> set[str]:
    """Names that surely have an entry below a loop."""
    return {made.key, made.value} if isinstance(made, t.Sum) else set()


def copy_at_once(node: t.Node, context: Context) -> t.Node | None:
    """sum(<i, a> in R) { i -> a } ~> R

    unless R is a range or a part of an array, whose values are no reals.
    """
    if not isinstance(node, t.Sum) or isinstance(node.range, t.PHYSICAL) or not isinstance(node.body, t.Singleton):
        return None
    if node.body.key != t.Var(node.key) or node.body.value != t.Var(node.value):
        return None
    over = check(node.range, context.types)
    return node.range if over and over.element == "real" else None


# Products


def multiply_scalars(node: t.Node, context: Context) -> t.Node | None:
    """a * { k -> b } ~> { k -> a * b }, a * sum(<i, r> in R) b ~> sum(<i, r> in R) a * b, and a * T ~>
    sum(<i, b> in T) { i -> a * b }

    if a is a scalar and the other one a tensor; and the same from the right, where a may be a tensor too.
    """
    if not isinstance(node, t.Multiply):
        return None
    left, right = node.children
    is_left = context.order(left) > 0
    if not is_left and context.order(right) == 0:
        return None
    whole, other = (left, right) if is_left else (right, left)

    def product(part: t.Node, factor: t.Node) -> t.Node:
        return replace(node, left=part, right=factor) if is_left else replace(node, left=factor, right=part)

    match whole:
        case t.Singleton():
            return replace(whole, value=product(whole.value, other))
        case t.Sum():
            return _named(other, context, lambda factor: replace(whole, body=product(whole.body, factor)))
        case t.Add():
            return _named(
                other, context, lambda factor: t.Add(product(whole.left, factor), product(whole.right, factor))
            )
        case t.Let():
            return replace(whole, body=product(whole.body, other))
        case t.If():
            return replace(whole, body=product(whole.body, other))
    key, value = context.fresh("i"), context.fresh("a")
    return _named(
        other,
        context,
        lambda factor: t.Sum(key, value, whole, t.Singleton(t.Var(key), product(t.Var(value), factor))),
    )


RULES: tuple[Rule, ...] = (
    float_bindings,
    hoist_bindings,
    inline_bindings,
    hoist_conditions,
    decide_conditions,
    fold_numbers,
    multiply_scalars,
    look_up,
    fuse,
    solve_equalities,
    copy_at_once,
    fuse_lookups,
    inline_maps,
)
