"""SDDs of PySDD: a manager for a vtree, and the and-or graph of live nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from derivable.circuit.graph.and_or_graph import AndOrGraph, NodeLists
from derivable.circuit.graph.vtree import Vtree
from derivable.core.and_or import AND, FALSE, LITERAL, OR


def manager_of(vtree: Vtree) -> Any:
    """A PySDD manager that starts with this vtree, and changes nothing by itself."""
    from pysdd.sdd import SddManager
    from pysdd.sdd import Vtree as PysddVtree

    with TemporaryDirectory(prefix="derivable-") as folder:
        path = Path(folder, "start.vtree")
        path.write_text(vtree.text())
        manager = SddManager.from_vtree(PysddVtree.from_file(str(path)))
    manager.auto_gc_and_minimize_off()
    # Seconds: the defaults (180 for one search) can outlast the compilation that they should help.
    manager.set_vtree_search_time_limit(20)
    manager.set_vtree_fragment_time_limit(5)
    manager.set_vtree_operation_time_limit(2)
    manager.set_vtree_apply_time_limit(2)
    return manager


def export(roots: Sequence[Any], to_outer: Callable[[int], int] = int) -> AndOrGraph:
    """The nodes below live SDD `roots`, children first, each once; a decision node is an or-node of (prime, sub)."""
    nodes, node_of = NodeLists(), dict[int, int]()
    for root in roots:
        stack: list[tuple[Any, Any]] = [(root, None)]
        while stack:
            node, elements = stack.pop()
            if node.id in node_of:
                continue
            if elements is None and node.is_decision():
                elements = node.elements()
                stack.append((node, elements))
                stack += [(part, None) for element in elements for part in element if part.id not in node_of]
                continue
            if elements is None:
                kind = LITERAL if node.is_literal() else FALSE + bool(node.is_true())
                node_of[node.id] = nodes.add(kind, literal=to_outer(node.literal) if node.is_literal() else 0)
            else:
                parts = [nodes.add(AND, (node_of[prime.id], node_of[sub.id])) for prime, sub in elements]
                node_of[node.id] = nodes.add(OR, parts)
    return nodes.graph([node_of[root.id] for root in roots])
