"""The dataflow graph: what of an operator graph runs as one node, what runs beside what, and what it costs.

Entry-by-entry operators are fused into the node of the array that they follow, and stand in it for the SIMD unit, which
takes the values as they leave the array. The nodes of one loop (one pass of the model) have a critical path, found by
depth-first search, and what can run in parallel with each node of it, found breadth first.

Printed form, a node of the critical path a line, with what runs beside it below:

    loop of 4 nodes, 3 of them on the critical path, 900 cycles of 1000
    %conv2d_1    neural   layer[64, 27, 8] + elementwise[512]     weights 216, inputs 768, outputs 512
    %bind_1      symbolic vectors[4, 16]                          weights 64, inputs 64, outputs 64
      | %bind_2  symbolic vectors[4, 16]                          weights 64, inputs 64, outputs 64
    %sum_1       symbolic elementwise[64]                         weights 0, inputs 64, outputs 16

Source: NSFlow (Yang et al., 2025), section V-B and figure 4.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from derivable.accelerator.explore.schedule import Workload
from derivable.accelerator.numbers.precision import bytes_of, format_of
from derivable.accelerator.operators import runtime
from derivable.accelerator.operators.evaluation import Inputs, checked_inputs
from derivable.accelerator.operators.kinds import Moved, Work, size
from derivable.accelerator.operators.operators import Operator, OperatorGraph, Part, wide
from derivable.accelerator.operators.runtime import Elementwise, Layer, Vectors, ceil_div
from derivable.core.diagnostics import BindingError, LayoutError

Weight: TypeAlias = "Callable[[Node], float]"


@dataclass(frozen=True)
class Node:
    """Operators that run as one.

    name       of its first operator
    operators  the one that the node is of, then those that are fused to it, in their order; the result of the last
               leaves the node
    work       of the first operator
    fused      elementwise work of the others
    inputs     names of the nodes whose results it reads
    weights    elements that wait in the array: weights, a codebook, or the vectors that others are bound with
    streamed   elements that are read beside them
    outputs    elements of the result
    source     module and line of the first operator
    """

    name: str
    operators: tuple[str, ...]
    part: Part
    work: Work
    fused: tuple[Elementwise, ...]
    inputs: tuple[str, ...]
    weights: int
    streamed: int
    outputs: int
    source: str = ""

    @property
    def result(self) -> str:
        """The operator whose result others read."""
        return self.operators[-1]

    @property
    def on_array(self) -> bool:
        return isinstance(self.work, (Layer, Vectors))

    @property
    def elementwise(self) -> tuple[Elementwise, ...]:
        """All of its work for the SIMD unit."""
        return (self.work, *self.fused) if isinstance(self.work, Elementwise) else self.fused

    def cycles(self, height: int, width: int, sub_arrays: int, simd: int) -> int:
        """Cycles on so many sub-arrays and lanes: the array's by equations (1) and (4), the SIMD unit's beside it;
        moves take a cycle for as many values as there are lanes."""
        lanes = sum(runtime.elementwise_cycles(work, simd) for work in self.elementwise)
        if isinstance(self.work, Layer):
            return max(int(runtime.layer_cycles(self.work, height, width, sub_arrays)), lanes)
        if isinstance(self.work, Vectors):
            return max(int(runtime.temporal_cycles(self.work, height, width, sub_arrays)), lanes)
        return lanes if isinstance(self.work, Elementwise) else ceil_div(self.work.elements, simd) + lanes

    def memory(self, precision: Mapping[str, str]) -> Memory:
        """Bytes of what it reads and gives, in its format."""
        bits = format_of(self.name, self.part, precision).bits
        return Memory(*(bytes_of(elements, bits) for elements in (self.weights, self.streamed, self.outputs)))

    def __str__(self) -> str:
        return f"%{self.name} {self.part} {' + '.join(map(str, (self.work, *self.fused)))}"


@dataclass(frozen=True)
class Memory:
    """Bytes of a node: of its weights, of its other inputs, and of its outputs."""

    weights: int
    inputs: int
    outputs: int


@dataclass(frozen=True)
class DataflowGraph:
    """The nodes of one loop, in an order in which each comes after its inputs.

    critical  names of nodes, each an input of the next: the path of the most cycles
    beside    for each node of it, what can run beside it: these do not depend on it, nor it on them
    weights   cycles of each node, by which the path was found
    """

    nodes: tuple[Node, ...]
    critical: tuple[str, ...]
    beside: tuple[tuple[str, ...], ...]
    weights: tuple[float, ...]

    @cached_property
    def by_name(self) -> dict[str, Node]:
        return {node.name: node for node in self.nodes}

    @cached_property
    def cycles(self) -> dict[str, float]:
        """The weight of each node."""
        return dict(zip(self.by_name, self.weights))

    @cached_property
    def node_of(self) -> dict[str, str]:
        """The node of each operator that is in one."""
        return {name: node.name for node in self.nodes for name in node.operators}

    def lowered_in(self, name: str) -> str | None:
        """The node of an operator of the prepared graph: what a composite one is made of begins with its name."""
        return self.node_of.get(name if name in self.node_of else name.rpartition(".")[0])

    def __len__(self) -> int:
        return len(self.nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    def groups(self) -> Iterator[tuple[Node, tuple[Node, ...]]]:
        """The nodes of the critical path in turn, with those beside them."""
        for name, others in zip(self.critical, self.beside):
            yield self.by_name[name], tuple(self.by_name[other] for other in others)

    @property
    def layers(self) -> tuple[Node, ...]:
        """Products of matrices of the neural part: R_l of the paper."""
        return tuple(node for node in self if isinstance(node.work, Layer) and node.part == "neural")

    @property
    def vectors(self) -> tuple[Node, ...]:
        """What else runs on the array, R_v of the paper: circular convolutions, and products of matrices of the
        symbolic part."""
        return tuple(node for node in self if node.on_array and node not in self.layers)

    def workload(self) -> Workload:
        """What the exploration of designs takes."""
        layers, vectors = [node.work for node in self.layers], [node.work for node in self.vectors]
        return Workload(layers, vectors)  # type: ignore[arg-type]

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def explain(self, precision: Mapping[str, str] | None = None) -> str:
        """The printed form, with bytes in the place of elements if formats of both parts are given."""
        return "\n".join(_lines(self, precision))


def _lines(graph: DataflowGraph, precision: Mapping[str, str] | None = None) -> Iterator[str]:
    along = sum(graph.cycles[name] for name in graph.critical)
    total = sum(graph.weights)
    yield (
        f"loop of {len(graph)} nodes, {len(graph.critical)} of them on the critical path, {along:g} cycles of {total:g}"
    )
    rows = []
    for node, others in graph.groups():
        rows += [("", node), *(("  | ", other) for other in others)]
    names = [f"{mark}%{node.name}" for mark, node in rows]
    texts = [f"{node.part:8} {' + '.join(map(str, (node.work, *node.fused)))}" for _, node in rows]
    for name, text, (_, node) in zip(names, texts, rows):
        sizes = (node.weights, node.streamed, node.outputs)
        if precision is not None:
            memory = node.memory(precision)
            sizes = (memory.weights, memory.inputs, memory.outputs)
        named = ", ".join(f"{what} {count}" for what, count in zip(("weights", "inputs", "outputs"), sizes))
        yield f"{name:{max(map(len, names))}} {text:{max(map(len, texts))}}  {named}"


# Nodes


def dataflow(
    graph: OperatorGraph, *, precision: Mapping[str, str] | None = None, weight: Weight | None = None
) -> DataflowGraph:
    """The dataflow graph of an operator graph.

    precision  the format of each part, such as {"neural": "int8", "symbolic": "int4"}, and of operators that have
               another one: two products of INT4 share a multiplier
    weight     cycles of a node, by which the critical path is the longest; by default those on one sub-array of 32 x 32
               and 64 lanes

    Raises LayoutError for a graph that computes nothing.
    """
    nodes = _nodes(graph, precision or {"neural": "int8", "symbolic": "int8"})
    if not nodes:
        raise LayoutError("the graph has no operator that computes", hint="its outputs are its inputs or constants")
    weights = tuple((weight or _nominal)(node) for node in nodes)
    critical = _critical_path(nodes, weights)
    return DataflowGraph(nodes, critical, _beside(nodes, critical), weights)


def _nominal(node: Node) -> float:
    return float(node.cycles(32, 32, 1, 64))


def _nodes(graph: OperatorGraph, precision: Mapping[str, str]) -> tuple[Node, ...]:
    users, outputs = graph.users, set(graph.outputs)
    order = {operator.name: index for index, operator in enumerate(graph)}
    groups: dict[str, list[Operator]] = {}  # by the name of the last operator
    for operator in graph:
        if operator.unit == "source":
            continue
        behind = _follows(graph, operator, groups, users, outputs, order)
        groups[operator.name] = [*(groups.pop(behind) if behind else []), operator]
    home = {member.name: members[0].name for members in groups.values() for member in members}
    nodes = []
    for last in sorted(groups, key=order.__getitem__):
        members = groups[last]
        first, own = members[0], {member.name for member in members}
        held = graph.stationary(first)
        if first.unit == "vector":
            held = 1
        read = list(dict.fromkeys(name for member in members for name in member.inputs if name not in own))
        waiting = first.inputs[held] if held is not None else None
        sizes = {name: size(graph[name].shape) for name in read}
        work = graph.work(first)
        if isinstance(work, (Layer, Vectors)):
            work = replace(work, products=format_of(first.name, first.part, precision).products)
        fused = [graph.work(member) for member in members[1:]]
        nodes.append(
            Node(
                name=first.name,
                operators=tuple(member.name for member in members),
                part=first.part,
                work=work,
                fused=tuple(item for item in fused if isinstance(item, Elementwise)),
                inputs=tuple(dict.fromkeys(home[name] for name in read if name in home)),
                weights=sizes[waiting] if waiting is not None else 0,
                streamed=sum(count for name, count in sizes.items() if name != waiting),
                outputs=size(graph[last].shape),
                source=first.source,
            )
        )
    return tuple(nodes)


def _follows(
    graph: OperatorGraph,
    operator: Operator,
    groups: Mapping[str, Sequence[Operator]],
    users: Mapping[str, tuple[str, ...]],
    outputs: set[str],
    order: Mapping[str, int],
) -> str | None:
    """The last operator of the node that an operator is fused to, None if it begins one.

    Entry by entry it follows a node of the array that nothing else reads, of the same size; of two such nodes the one
    that is computed last. A view that moves nothing follows whatever it reads.
    """
    is_free = operator.unit == "view" and graph.work(operator) == Moved(0)
    if not is_free and not operator.row.is_entrywise:
        return None
    for name in sorted((name for name in operator.inputs if name in groups), key=order.__getitem__, reverse=True):
        if users[name] != (operator.name,) or name in outputs or operator.inputs.count(name) > 1:
            continue
        if is_free:
            return name
        if groups[name][0].unit in ("gemm", "vector") and size(graph[name].shape) == size(operator.shape):
            return name
    return None


def _critical_path(nodes: Sequence[Node], weights: Sequence[float]) -> tuple[str, ...]:
    """The path of the largest weight, by depth-first search from what nothing reads; of equal ones that of more nodes,
    then the first."""
    by_name, cost = {node.name: node for node in nodes}, dict(zip((node.name for node in nodes), weights))
    longest: dict[str, tuple[float, int, str | None]] = {}  # weight and nodes up to this one, and the one before it
    read = {name for node in nodes for name in node.inputs}
    stack = [node.name for node in reversed(nodes) if node.name not in read]
    while stack:
        name = stack[-1]
        waiting = [other for other in by_name[name].inputs if other not in longest]
        if waiting:
            stack += reversed(waiting)
            continue
        stack.pop()
        before = max(by_name[name].inputs, key=lambda other: longest[other][:2], default=None)
        above, count = longest[before][:2] if before else (0.0, 0)
        longest[name] = (cost[name] + above, count + 1, before)
    name: str | None = max((node.name for node in nodes if node.name not in read), key=lambda name: longest[name][:2])
    path = []
    while name is not None:
        path.append(name)
        name = longest[name][2]
    return tuple(reversed(path))


def _beside(nodes: Sequence[Node], critical: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """What can run beside each node of the path: breadth first, each node one place after the last that it needs, but
    before the first of the path that needs it."""
    place = {name: index for index, name in enumerate(critical)}
    limit: dict[str, int] = {}
    for node in reversed(nodes):
        first = place.get(node.name, limit.get(node.name, len(critical)))
        for name in node.inputs:
            limit[name] = min(limit.get(name, len(critical)), first)
    found: list[list[str]] = [[] for _ in critical]
    earliest: dict[str, int] = {}
    for node in nodes:
        after = max((earliest[name] + 1 for name in node.inputs), default=0)
        if node.name in place:
            earliest[node.name] = place[node.name]
            continue
        last = limit.get(node.name, len(critical)) - 1
        needed = max((place.get(name, earliest[name] - 1) + 1 for name in node.inputs), default=0)
        earliest[node.name] = max(min(after, last, len(critical) - 1), needed, 0)
        found[earliest[node.name]].append(node.name)
    return tuple(map(tuple, found))


# Validator


def check(flow: DataflowGraph, graph: OperatorGraph) -> None:
    """Raise LayoutError or BindingError unless the dataflow graph is one of this operator graph.

    Every operator that computes is in one node, only the last of a node is read outside it, nodes come after their
    inputs; the critical path is a path; every other node is beside one node of the path, neither of which needs the
    other.
    """
    computing = [operator.name for operator in graph if operator.unit != "source"]
    inside = [name for node in flow for name in node.operators]
    if sorted(inside) != sorted(computing):
        wrong = sorted(set(inside) ^ set(computing)) or [name for name in inside if inside.count(name) > 1]
        raise LayoutError(f"the operator %{wrong[0]} is not in exactly one node")
    before: dict[str, set[str]] = {}
    for node in flow:
        own = set(node.operators)
        if node.operators[0] != node.name:
            raise LayoutError(f"the node %{node.name} begins with %{node.operators[0]}")
        needed = {name for member in node.operators for name in graph[member].inputs if name not in own}
        reads = {flow.node_of[name] for name in needed if name in flow.node_of}
        if reads != set(node.inputs):
            raise LayoutError(f"the node %{node.name} reads {sorted(reads)}, it says {sorted(node.inputs)}")
        for name in needed:
            if name in flow.node_of and flow.by_name[flow.node_of[name]].result != name:
                raise LayoutError(f"the node %{node.name} reads %{name} out of the middle of %{flow.node_of[name]}")
        for name in node.inputs:
            if name not in before:
                raise LayoutError(f"the node %{node.name} comes before its input %{name}")
        before[node.name] = set(node.inputs).union(*(before[name] for name in node.inputs))
    for name in graph.outputs:
        if name in flow.node_of and flow.by_name[flow.node_of[name]].result != name:
            raise LayoutError(f"the output %{name} is in the middle of %{flow.node_of[name]}")
    _check_path(flow, before)


def _check_path(flow: DataflowGraph, before: Mapping[str, set[str]]) -> None:
    for name in (*flow.critical, *(other for others in flow.beside for other in others)):
        if name not in flow.by_name:
            raise BindingError(f"there is no node %{name}")
    for one, other in itertools.pairwise(flow.critical):
        if one not in flow.by_name[other].inputs:
            raise LayoutError(f"%{other} follows %{one} on the critical path and does not read it")
    placed = [*flow.critical, *(name for others in flow.beside for name in others)]
    if len(flow.beside) != len(flow.critical) or sorted(placed) != sorted(flow.by_name):
        raise LayoutError("not every node is on the critical path or beside one node of it")
    done: set[str] = set()
    for name, others in zip(flow.critical, flow.beside):
        for other in others:
            if other in before[name] or name in before[other]:
                raise LayoutError(f"%{other} cannot run beside %{name}: one needs the other")
        for each in (name, *others):
            missing = before[each] - done - set(others)
            if missing:
                raise LayoutError(f"%{each} runs before %{sorted(missing)[0]}, which it needs")
        done.update((name, *others))


# Meaning


def evaluate(flow: DataflowGraph, graph: OperatorGraph, inputs: Inputs) -> tuple[np.ndarray, ...]:
    """The outputs of the operator graph, node by node in the order of the critical path: of those beside each other the
    one on the path comes last, the others in their order."""
    found: dict[str, np.ndarray] = dict(checked_inputs(graph, inputs))
    found.update({name: wide(array) for name, array in graph.constants.items()})
    for node, others in flow.groups():
        for each in (*others, node):
            values: dict[str, Any] = {}
            for name in each.operators:
                operator = graph[name]
                operands = [values[i] if i in values else found[i] for i in operator.inputs]
                values[name] = np.asarray(operator.row.evaluate(operands, operator.at))
            found[each.result] = values[each.result]
    return tuple(found[name] for name in graph.outputs)
