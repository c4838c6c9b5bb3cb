"""From a ground derivation graph with cycles and negations to an acyclic negation normal form.

`unroll` breaks cycles: within a strongly connected component with n tuples, the least fixpoint of the (monotone)
derivation operator is reached after n rounds in every world, because a shortest derivation uses no tuple twice. Round
k's formula of a tuple refers to round k - 1's; a node whose children did not change is not built again, so the acyclic
part of a component costs one copy. `normal_form` then pushes negations to the literals by duality.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numba import njit

from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import boolean
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.core.diagnostics import UnsupportedError
from derivable.core.progress import NEVER, Deadline
from derivable.datalog.ground_graph import GraphArrays, GroundGraph
from derivable.device.cpu.derivations import components, reachable

MAX_UNROLLED_EDGES = 50_000_000


@dataclass(frozen=True)
class NormalForm:
    """An acyclic AND/OR graph over literals, children before parents.

    kind [node] uint8, literal [node] int32 (signed DIMACS), offsets [node + 1], children [edge] int64, roots [root]
    """

    kind: np.ndarray
    literal: np.ndarray
    offsets: np.ndarray
    children: np.ndarray
    roots: np.ndarray


def restrict(graph: GraphArrays, roots: np.ndarray) -> tuple[GraphArrays, np.ndarray]:
    """The part of a graph below signed roots, and the roots in it. Nodes 0 and 1 stay the constants."""
    seen = reachable(graph.offsets, graph.children, roots)
    seen[:2] = True
    new = np.cumsum(seen) - 1
    kept = np.flatnonzero(seen)
    lengths = np.diff(graph.offsets)
    edges = np.repeat(seen, lengths)
    offsets = np.zeros(len(kept) + 1, dtype=np.int64)
    np.cumsum(lengths[kept], out=offsets[1:])
    return (
        GraphArrays(
            graph.kind[kept], graph.literal[kept], offsets, _renumber(graph.children[edges], new), graph.acyclic
        ),
        _renumber(roots, new),
    )


def _renumber(signed: np.ndarray, new: np.ndarray) -> np.ndarray:
    return np.where(signed < 0, ~new[np.where(signed < 0, ~signed, signed)], new[np.where(signed < 0, 0, signed)])


def unroll(
    graph: GraphArrays, roots: np.ndarray, deadline: Deadline = NEVER, semiring: Semiring = boolean
) -> tuple[GraphArrays, np.ndarray]:
    """An equivalent acyclic graph, where plus is idempotent, and the roots in it.

    Raises UnsupportedError if plus is not idempotent and a tuple is among its own reasons.
    """
    graph, roots = restrict(graph, roots)
    if graph.acyclic:
        return graph, roots
    num_edges = len(graph.children)
    graph = _without_self_loops(graph)
    component, number = components(graph.offsets, graph.children)
    if not semiring.idempotent_plus and (number < len(graph.kind) or len(graph.children) < num_edges):
        raise UnsupportedError(
            f"a tuple is derived from itself, so it has infinitely many derivations to add up in {semiring.name!r}",
            hint="godel, max_product and other semirings with an idempotent plus have a value for it, and so has exact",
        )
    members = np.argsort(component, kind="stable")
    starts = np.searchsorted(component[members], np.arange(number + 1))
    sizes = np.diff(starts)
    out = GroundGraph(semiring)
    image = np.full(len(graph.kind), -1, dtype=np.int64)
    image[:2] = [FALSE, TRUE]
    position = 0
    while position < number:
        # A run of single nodes is copied in bulk, a proper component is unrolled.
        stop = position
        while stop < number and sizes[stop] == 1:
            stop += 1
        if stop > position:
            _copy(graph, members[starts[position] : starts[stop]], image, out)
            position = stop
            continue
        _unroll_component(graph, members[starts[position] : starts[position + 1]], image, out, deadline)
        position += 1
    unrolled = out.finish()
    negative = roots < 0
    mapped = image[np.where(negative, ~roots, roots)]
    mapped = np.where(negative, _negated(mapped), mapped)
    return restrict(GraphArrays(unrolled.kind, unrolled.literal, unrolled.offsets, unrolled.children, True), mapped)


def _without_self_loops(graph: GraphArrays) -> GraphArrays:
    """A tuple that derives itself adds nothing: x = a or x is a."""
    owner = np.repeat(np.arange(len(graph.kind)), np.diff(graph.offsets))
    keep = graph.children != owner
    offsets = np.concatenate([[0], np.cumsum(np.bincount(owner[keep], minlength=len(graph.kind)))])
    return GraphArrays(graph.kind, graph.literal, offsets, graph.children[keep], graph.acyclic)


def _negated(nodes: np.ndarray) -> np.ndarray:
    return np.where((nodes == FALSE) | (nodes == TRUE), 1 - nodes, ~nodes)


def _edges_of(graph: GraphArrays, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(position in nodes [edge], signed children [edge])."""
    lengths = graph.offsets[nodes + 1] - graph.offsets[nodes]
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    within = np.arange(total) - np.repeat(ends - lengths, lengths)
    edges = np.repeat(graph.offsets[nodes], lengths) + within
    return np.repeat(np.arange(len(nodes)), lengths), graph.children[edges]


def _copy(graph: GraphArrays, nodes: np.ndarray, image: np.ndarray, out: GroundGraph) -> None:
    """Copy nodes, given children first, each outside any cycle."""
    fresh = nodes[nodes > 1]
    for kind in (LITERAL, AND, OR):
        some = fresh[graph.kind[fresh] == kind]
        image[some] = out.new_nodes(kind, len(some), graph.literal[some])
    image[fresh[graph.kind[fresh] == TRUE]] = TRUE
    inner = fresh[(graph.kind[fresh] == AND) | (graph.kind[fresh] == OR)]
    owner, children = _edges_of(graph, inner)
    if len(owner):
        out.edges.append((image[inner][owner], _mapped(children, image)))


def _mapped(children: np.ndarray, image: np.ndarray) -> np.ndarray:
    negative = children < 0
    mapped = image[np.where(negative, ~children, children)]
    return np.where(negative, _negated(mapped), mapped)


def _unroll_component(
    graph: GraphArrays, nodes: np.ndarray, image: np.ndarray, out: GroundGraph, deadline: Deadline
) -> None:
    tuples = nodes[graph.kind[nodes] == OR]
    derivations = nodes[graph.kind[nodes] == AND]
    inside = np.zeros(len(graph.kind), dtype=bool)
    inside[nodes] = True
    tuple_owner, tuple_children = _edges_of(graph, tuples)
    derivation_owner, derivation_children = _edges_of(graph, derivations)
    image[nodes] = FALSE
    num_edges, counted = 0, 0
    for _ in range(len(tuples)):
        deadline.remaining()
        # Derivations read the last round's tuples (directly, or through single-factor derivations of this round).
        changed = _round(derivations, derivation_owner, derivation_children, image, out, AND)
        changed |= _round(tuples, tuple_owner, tuple_children, image, out, OR)
        if not changed:
            return
        num_edges += sum(len(parents) for parents, _ in out.edges[counted:])
        counted = len(out.edges)
        if num_edges > MAX_UNROLLED_EDGES:
            raise UnsupportedError(
                f"the exact provenance of a recursive component with {len(tuples)} tuples is too large",
                hint="ask for fewer outputs, or use provenance='topkproofs'",
            )


def _round(
    nodes: np.ndarray, owner: np.ndarray, children: np.ndarray, image: np.ndarray, out: GroundGraph, kind: int
) -> bool:
    """Build the nodes anew from the images of their children; True if any image changed."""
    if not len(nodes):
        return False
    mapped = _mapped(children, image)
    if kind == AND:
        result = _fold(owner, mapped, len(nodes), out, AND, FALSE, TRUE)
    else:
        result = _fold(owner, mapped, len(nodes), out, OR, TRUE, FALSE)
    changed = bool((image[nodes] != result).any())
    image[nodes] = result
    return changed


def _fold(
    owner: np.ndarray, mapped: np.ndarray, count: int, out: GroundGraph, kind: int, absorbing: int, neutral: int
) -> np.ndarray:
    """Nodes [segment] of the and/or of mapped children, hash-consed within the unrolled graph."""
    order = np.lexsort((mapped, owner))
    owner, mapped = owner[order], mapped[order]
    keep = mapped != neutral
    semiring = out.semiring
    if semiring.idempotent_times if kind == AND else semiring.idempotent_plus:
        keep[1:] &= (owner[1:] != owner[:-1]) | (mapped[1:] != mapped[:-1])
    absorbed = np.zeros(count, dtype=bool)
    if kind == AND or semiring.absorptive:
        absorbed[owner[mapped == absorbing]] = True
    owner, mapped = owner[keep], mapped[keep]
    number = np.bincount(owner, minlength=count)
    starts = np.concatenate([[0], np.cumsum(number)])
    result = np.full(count, neutral, dtype=np.int64)
    some = number > 0
    result[some] = mapped[starts[:-1][some]]
    result[absorbed] = absorbing
    memo = out.__dict__.setdefault("memo", {})
    fresh: list[int] = []
    for i in np.flatnonzero((number > 1) & ~absorbed).tolist():
        part = mapped[starts[i] : starts[i + 1]]
        key = (kind, part.tobytes())
        found = memo.get(key)
        if found is None:
            found = memo[key] = out.size + len(fresh)
            fresh.append(i)
        result[i] = found
    new = out.new_nodes(kind, len(fresh))
    if fresh:
        chosen = np.array(fresh)
        lengths = number[chosen]
        ends = np.cumsum(lengths)
        within = np.arange(int(ends[-1])) - np.repeat(ends - lengths, lengths)
        out.edges.append((np.repeat(new, lengths), mapped[np.repeat(starts[chosen], lengths) + within]))
    return result


@njit(cache=True, nogil=True)
def _mark_signs(kind, offsets, children, wanted):
    """wanted[node, sign]: from parents to children, a negated inner node wants its children negated."""
    for n in range(len(kind) - 1, -1, -1):
        for sign in range(2):
            if wanted[n, sign] and kind[n] >= AND:
                for e in range(offsets[n], offsets[n + 1]):
                    c = children[e]
                    if c < 0:
                        wanted[~c, 1 - sign] = True
                    else:
                        wanted[c, sign] = True


@njit(cache=True, nogil=True)
def _emit(kind, literal, offsets, children, number, new_kind, new_literal, new_offsets, new_children):
    edge = 0
    for n in range(len(kind)):
        for sign in range(2):
            m = number[n, sign]
            if m < 0:
                continue
            new_offsets[m] = edge
            k = kind[n]
            if k == LITERAL:
                new_kind[m] = LITERAL
                new_literal[m] = literal[n] if sign == 0 else -literal[n]
            elif k <= TRUE:
                new_kind[m] = k if sign == 0 else 1 - k
            else:
                new_kind[m] = k if sign == 0 else AND + OR - k
                for e in range(offsets[n], offsets[n + 1]):
                    c = children[e]
                    if c < 0:
                        new_children[edge] = number[~c, 1 - sign]
                    else:
                        new_children[edge] = number[c, sign]
                    edge += 1
    return edge


def topological(graph: GraphArrays, roots: np.ndarray) -> tuple[GraphArrays, np.ndarray]:
    """The same acyclic graph with children numbered before parents."""
    owner = np.repeat(np.arange(len(graph.kind)), np.diff(graph.offsets))
    plain = np.where(graph.children < 0, ~graph.children, graph.children)
    if (plain < owner).all():
        return graph, roots
    component, _ = components(graph.offsets, graph.children)
    order = np.argsort(component, kind="stable")
    new = np.empty(len(order), dtype=np.int64)
    new[order] = np.arange(len(order))
    lengths = np.diff(graph.offsets)[order]
    _, children = _edges_of(graph, order)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    arrays = GraphArrays(graph.kind[order], graph.literal[order], offsets, _renumber(children, new), True)
    return arrays, _renumber(roots, new)


def normal_form(graph: GraphArrays, roots: np.ndarray, deadline: Deadline) -> NormalForm:
    """Negation normal form of the signed roots: cycles broken, negations at the literals."""
    graph, roots = unroll(graph, roots, deadline)
    graph, roots = topological(graph, roots)
    wanted = np.zeros((len(graph.kind), 2), dtype=np.bool_)
    negative = roots < 0
    wanted[roots[~negative], 0] = True
    wanted[~roots[negative], 1] = True
    _mark_signs(graph.kind, graph.offsets, graph.children, wanted)
    number = np.where(wanted, np.cumsum(wanted.reshape(-1)).reshape(wanted.shape) - 1, -1)
    size = int(wanted.sum())
    room = int((np.diff(graph.offsets)[:, None] * wanted).sum())
    kind = np.empty(size, dtype=np.uint8)
    literal = np.zeros(size, dtype=np.int32)
    offsets = np.empty(size + 1, dtype=np.int64)
    children = np.empty(room, dtype=np.int64)
    offsets[size] = _emit(
        graph.kind, graph.literal, graph.offsets, graph.children, number, kind, literal, offsets, children
    )
    form = NormalForm(kind, literal, offsets, children, number[np.where(negative, ~roots, roots), negative.astype(int)])
    return _flattened(form)


@njit(cache=True, nogil=True)
def _representatives(kind, offsets, children, uses, alias, merged):
    """alias [node]: the child a node with one child stands for; merged [node]: the conjunction that takes it up."""
    size = len(kind)
    for n in range(size):
        alias[n] = n
        if kind[n] >= AND and offsets[n + 1] - offsets[n] == 1:
            alias[n] = alias[children[offsets[n]]]
    for n in range(size):
        merged[n] = n
        if alias[n] == n:
            for e in range(offsets[n], offsets[n + 1]):
                uses[alias[children[e]]] += 1
    for n in range(size - 1, -1, -1):
        if kind[n] == AND and alias[n] == n:
            for e in range(offsets[n], offsets[n + 1]):
                c = alias[children[e]]
                if kind[c] == AND and uses[c] == 1:
                    merged[c] = merged[n]


def _flattened(form: NormalForm) -> NormalForm:
    """The same formulas without nodes of one child, and with conjunctions taken up by the only one that uses them.

    A chain of derivations becomes one conjunction: what compiles it need not look at every prefix.
    """
    size = len(form.kind)
    uses = np.zeros(size, dtype=np.int64)
    alias, merged = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    single = np.diff(form.offsets) == 1
    # Roots are used from outside; so is whatever a root with one child stands for.
    uses[form.roots] += 2
    for root in form.roots[single[form.roots] & (form.kind[form.roots] >= AND)].tolist():
        while single[root] and form.kind[root] >= AND:
            root = int(form.children[form.offsets[root]])
        uses[root] += 2
    _representatives(form.kind, form.offsets, form.children, uses, alias, merged)
    kept = (alias == np.arange(size)) & (merged == np.arange(size))
    owner = np.repeat(np.arange(size), np.diff(form.offsets))
    inner = alias[owner] == owner
    owner, child = merged[owner[inner]], alias[form.children[inner]]
    stays = merged[child] == child
    owner, child = owner[stays], child[stays]
    order = np.lexsort((child, owner))
    owner, child = owner[order], child[order]
    distinct = np.ones(len(owner), dtype=bool)
    distinct[1:] = (owner[1:] != owner[:-1]) | (child[1:] != child[:-1])
    owner, child = owner[distinct], child[distinct]
    new = np.cumsum(kept) - 1
    offsets = np.concatenate([[0], np.cumsum(np.bincount(new[owner], minlength=int(kept.sum())))])
    return NormalForm(form.kind[kept], form.literal[kept], offsets, new[child], new[alias[form.roots]])
