"""From a ground derivation graph with cycles and negations to an acyclic negation normal form.

`unroll` breaks cycles: within a strongly connected component with n tuples, the least fixpoint of the (monotone)
derivation operator is reached after n rounds in every world, because a shortest derivation uses no tuple twice. Round
k's formula of a tuple refers to round k - 1's; a node whose children did not change is not built again, so the acyclic
part of a component costs one copy. `normal_form` then pushes negations to the literals by duality.
"""

from __future__ import annotations

import numpy as np

from derivable.algebra.semiring import Semiring
from derivable.algebra.semirings import boolean
from derivable.circuit.graph.and_or_graph import AndOrGraph, plain
from derivable.circuit.kernels.and_or import components, representatives
from derivable.core.and_or import AND, FALSE, LITERAL, OR, TRUE
from derivable.core.diagnostics import UnsupportedError
from derivable.core.graph import offsets_of
from derivable.core.progress import NEVER, Deadline
from derivable.datalog.tags.ground_graph import GroundGraph, negate

MAX_UNROLLED_EDGES = 50_000_000


class TooManyEdges(UnsupportedError):
    """A graph without its cycles is too large."""


def infinitely_many(semiring: Semiring) -> UnsupportedError:
    """What a run ends in whose tuples are among their own reasons, where each derivation is added up."""
    return UnsupportedError(
        f"a tuple is derived from itself, so it has infinitely many derivations to add up in {semiring.name!r}",
        hint="godel, max_product and other semirings with an idempotent plus have a value for it, and so has exact",
    )


def unroll(
    graph: AndOrGraph,
    deadline: Deadline = NEVER,
    semiring: Semiring = boolean,
    most_edges: int = MAX_UNROLLED_EDGES,
) -> AndOrGraph:
    """An equivalent graph without cycles, where plus is idempotent; children come before parents.

    Raises UnsupportedError if plus is not idempotent and a tuple is among its own reasons, and TooManyEdges.
    """
    graph = graph.trimmed()
    if graph.is_ordered:
        return graph
    num_edges = graph.num_edges
    # A tuple that derives itself adds nothing: x = a or x is a.
    graph = graph.kept(graph.children != graph.parents)
    component, number = components(graph.offsets, graph.children)
    if not semiring.idempotent_plus and (number < graph.num_nodes or graph.num_edges < num_edges):
        raise infinitely_many(semiring)
    members = np.argsort(component, kind="stable")
    starts = np.searchsorted(component[members], np.arange(number + 1))
    sizes = np.diff(starts)
    out, known = GroundGraph(semiring), {}
    image = np.full(graph.num_nodes, -1, dtype=np.int64)
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
        component_nodes = members[starts[position] : starts[position + 1]]
        _unroll_component(graph, component_nodes, image, out, known, deadline, most_edges)
        position += 1
    return out.finish().with_roots(_mapped(graph.roots, image)).trimmed().ordered()


def _copy(graph: AndOrGraph, nodes: np.ndarray, image: np.ndarray, out: GroundGraph) -> None:
    """Copy nodes, given children first, each outside any cycle."""
    fresh = nodes[nodes > 1]
    for kind in (LITERAL, AND, OR):
        some = fresh[graph.kind[fresh] == kind]
        image[some] = out.new_nodes(kind, len(some), graph.literal[some])
    image[fresh[graph.kind[fresh] == TRUE]] = TRUE
    inner = fresh[(graph.kind[fresh] == AND) | (graph.kind[fresh] == OR)]
    owner, children = graph.children_of(inner)
    if len(owner):
        out.edges.append((image[inner][owner], _mapped(children, image)))


def _mapped(children: np.ndarray, image: np.ndarray) -> np.ndarray:
    mapped = image[plain(children)]
    return np.where(children < 0, negate(mapped), mapped)


def _unroll_component(
    graph: AndOrGraph,
    nodes: np.ndarray,
    image: np.ndarray,
    out: GroundGraph,
    known: dict,
    deadline: Deadline,
    most_edges: int,
) -> None:
    tuples = nodes[graph.kind[nodes] == OR]
    derivations = nodes[graph.kind[nodes] == AND]
    tuple_owner, tuple_children = graph.children_of(tuples)
    derivation_owner, derivation_children = graph.children_of(derivations)
    image[nodes] = FALSE
    num_edges, counted = 0, 0
    for _ in range(len(tuples)):
        deadline.remaining()
        # Derivations read the last round's tuples (directly, or through single-factor derivations of this round).
        changed = _round(derivations, derivation_owner, derivation_children, image, out, known, AND)
        changed |= _round(tuples, tuple_owner, tuple_children, image, out, known, OR)
        if not changed:
            return
        num_edges += sum(len(parents) for parents, _ in out.edges[counted:])
        counted = len(out.edges)
        if num_edges > most_edges:
            raise TooManyEdges(
                f"the exact provenance of a recursive component with {len(tuples)} tuples is too large",
                hint="ask for fewer outputs, or use provenance='topkproofs'",
            )


def _round(
    nodes: np.ndarray,
    owner: np.ndarray,
    children: np.ndarray,
    image: np.ndarray,
    out: GroundGraph,
    known: dict,
    kind: int,
) -> bool:
    """Build the nodes anew from the images of their children; True if any image changed."""
    if not len(nodes):
        return False
    result = out.gates_by(kind, owner, _mapped(children, image), len(nodes), known)
    changed = bool((image[nodes] != result).any())
    image[nodes] = result
    return changed


# How far below a derivation the tuple that it is of is looked for.
DEPTH = 4


def without_circular(graph: AndOrGraph, deadline: Deadline) -> AndOrGraph:
    """An equivalent graph for formulas, without derivations of tuples that need the tuple itself: x or (x and y) is x.

    A derivation needs what it is a conjunction of, and the derivation of each of these tuples that has only one.
    """
    graph, is_changed = graph.trimmed(), True
    while is_changed and not graph.is_ordered:
        deadline.remaining()
        component, _ = components(graph.offsets, graph.children)
        parents, is_circular = graph.parents, np.zeros(graph.num_edges, dtype=bool)
        edges = np.flatnonzero(graph.kind[parents] == OR)
        needed = graph.children[edges]
        is_circular[edges[needed == parents[edges]]] = True
        for _ in range(DEPTH):
            is_needed = (graph.kind[needed] == AND) | ((graph.kind[needed] == OR) & (graph.sizes[needed] == 1))
            goes_on = (needed >= 0) & is_needed & (component[needed] == component[parents[edges]])
            position, needed = graph.children_of(needed[goes_on])
            edges = edges[goes_on][position]
            is_circular[edges[needed == parents[edges]]] = True
        is_changed = bool(is_circular.any())
        graph = graph.kept(~is_circular).trimmed()
    return graph


def acyclic(graph: AndOrGraph, deadline: Deadline) -> AndOrGraph:
    """The roots as formulas of a graph without cycles, children before parents."""
    return unroll(without_circular(graph, deadline), deadline)


def normal_form(graph: AndOrGraph) -> AndOrGraph:
    """Negation normal form of the roots of an acyclic graph: negations at the literals, children before parents."""
    if (graph.children < 0).any() or (graph.roots < 0).any():
        # Node 2 n is node n, node 2 n + 1 its dual.
        node, sign = np.arange(2 * graph.num_nodes) >> 1, np.arange(2 * graph.num_nodes) & 1
        position, children = graph.children_of(node)
        dual = np.array([TRUE, FALSE, LITERAL, OR, AND], np.uint8)
        kind = np.where(sign, dual[graph.kind[node]], graph.kind[node])
        literal = np.where(sign, -graph.literal[node], graph.literal[node])
        signs = sign[position] ^ (children < 0)
        graph = AndOrGraph(
            kind,
            literal,
            offsets_of(graph.sizes[node]),
            2 * plain(children) + signs,
            2 * plain(graph.roots) + (graph.roots < 0),
        )
    return _flattened(graph.taken(np.flatnonzero(graph.needed())))


def _flattened(form: AndOrGraph) -> AndOrGraph:
    """The same formulas without nodes of one child, and with conjunctions taken up by the only one that uses them.

    A chain of derivations becomes one conjunction: what compiles it need not look at every prefix.
    """
    size = form.num_nodes
    uses = np.zeros(size, dtype=np.int64)
    alias, merged = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    # Roots are used from outside; so is whatever a root with one child stands for.
    used = form.roots
    while len(used):
        uses[used] += 2
        used = form.children_of(used[(form.sizes[used] == 1) & (form.kind[used] >= AND)])[1]
    representatives(form.kind, form.offsets, form.children, uses, alias, merged)
    is_node = (alias == np.arange(size)) & (merged == np.arange(size))
    inner = alias[form.parents] == form.parents
    owner, child = merged[form.parents[inner]], alias[form.children[inner]]
    stays = merged[child] == child
    owner, child = owner[stays], child[stays]
    order = np.lexsort((child, owner))
    owner, child = owner[order], child[order]
    distinct = np.ones(len(owner), dtype=bool)
    distinct[1:] = (owner[1:] != owner[:-1]) | (child[1:] != child[:-1])
    owner, child = owner[distinct], child[distinct]
    new = np.cumsum(is_node) - 1
    offsets = offsets_of(np.bincount(new[owner], minlength=int(is_node.sum())))
    return AndOrGraph(form.kind[is_node], form.literal[is_node], offsets, new[child], new[alias[form.roots]])
