"""The printed form of column programs: a line for each node, the body of a loop indented."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from derivable.parallel.program import nodes as n

_LETTERS = {"int64": "i", "bool": "m", n.INDEX: "h"}


def program_text(results: Sequence[n.Column], names: Sequence[str] = ()) -> str:
    """The program that computes these columns.

    names  of the results, printed at the end; none are printed if they have none
    """
    printer = _Printer()
    printer.lines(results, "")
    found = [f"{name} = {printer.name(column)}" for name, column in zip(names, results)]
    return "\n".join([*printer.found, *found])


class _Printer:
    def __init__(self):
        self.names: dict[n.Node, list[str]] = {}
        self.count = 0
        self.found: list[str] = []

    def name(self, column: n.Column) -> str:
        return self.names[column.node][column.number]

    def many(self, columns: Iterable[n.Column]) -> str:
        return " ".join(map(self.name, columns))

    def lines(self, results: Sequence[n.Column], indent: str, inside: frozenset[n.Node] | None = None) -> None:
        for node in n.nodes_of(results):
            if node in self.names or (inside is not None and node not in inside):
                continue
            self.names[node] = [self.fresh(of) for of in node.types]
            line = f"{', '.join(self.names[node])} = {self.node(node)}"
            self.found.append(f"{indent}{line}{self.shape(node)}")
            if isinstance(node, n.Otherwise):
                self.lines(node.others, indent + "  ", node.inside)
                self.found.append(f"{indent}  then {self.many(node.others)}")
            if isinstance(node, n.Pieces):
                self.lines(node.body, indent + "  ", node.inside)
                self.found.append(f"{indent}  then {self.many(node.body)}")
                self.lines(node.folded, indent + "  ", node.inside)
                self.found.append(f"{indent}  folded {self.many(node.folded)}")
            if isinstance(node, n.Loop):
                state = ", ".join(f"{self.fresh_state(c)} from {self.name(b)}" for c, b in zip(node.state, node.begin))
                self.found[-1] = f"{indent}{', '.join(self.names[node])} = loop {node.text} with {state}"
                self.lines(node.body, indent + "  ", node.moving)
                self.found.append(f"{indent}  next {self.many(node.body)}")

    def fresh(self, of: n.Type) -> str:
        self.count += 1
        return f"{_LETTERS.get(of.dtype, 'c')}{self.count - 1}"

    def fresh_state(self, column: n.Column) -> str:
        self.names.setdefault(column.node, [self.fresh(of) for of in column.node.types])
        return self.name(column)

    def node(self, node: n.Node) -> str:
        many, name = self.many, self.name
        match node:
            case n.Given():
                return f"given {node.name}"
            case n.Constant():
                return "constant" if np.ndim(node.values) else f"constant {node.values}"
            case n.Gather():
                otherwise = "" if node.otherwise is None else f" else {name(node.otherwise)}"
                return f"gather {name(node.of)} at {name(node.rows)}{otherwise}"
            case n.Fold():
                operator = "plus" if node.monoid is None else node.monoid.name
                return f"fold {operator} {many(node.of)} by {name(node.rows)}"
            case n.FoldLanes():
                return f"fold lanes {name(node.of)}"
            case n.Apply():
                function = node.function if isinstance(node.function, str) else node.function.name
                return f"{function} {many(node.inputs)}".rstrip()
            case n.Join():
                return f"join {many(node.probes)} with {name(node.index)}".replace("  ", " ")
            case n.Find():
                return f"find {many(node.probes)} in {name(node.index)}".replace("  ", " ")
            case n.Insert():
                return f"insert {many(node.columns)}{'' if node.into is None else f' into {name(node.into)}'}"
            case n.BuildOf():
                earlier = "earlier " * node.elements.is_earlier
                return f"build of {earlier}{name(node.of)} by {' '.join(map(str, node.positions))}"
            case n.Locate():
                return f"locate {many(node.columns)} in {name(node.among)}"
            case n.IsNew():
                return f"is new {name(node.rows)} in {name(node.among)}"
            case n.Put():
                return f"put {name(node.values)} at {name(node.rows)} in {name(node.into)}"
            case n.Elements():
                return f"{'earlier ' * node.is_earlier}elements {name(node.of)}"
            case n.Otherwise():
                return f"{node.text} by {many(node.reads)}, otherwise"
            case n.Pieces():
                return f"pieces of {many(node.of)} for {node.text}"
            case n.Call():
                return f"call {node.text} {many(node.of)}".rstrip()
            case n.Custom():
                return f"{node.text} {many(node.of)}".rstrip()
            case _:
                return f"{type(node).__name__.lower()} {many(node.operands)}".rstrip()

    def shape(self, node: n.Node) -> str:
        shapes = [
            [self.size(of.size)] * (of.size is not None) + [str(of.lanes)] * (of.lanes is not None) for of in node.types
        ]
        shown = list(dict.fromkeys(", ".join(shape) for shape in shapes))
        return f" [{'; '.join(shown)}]" if any(shown) else ""

    def size(self, size: n.Size | None) -> str:
        match size:
            case n.Found(node=n.Given(name=name)):
                return f"rows({name})"
            case n.Found():
                return f"found({self.names[size.node][size.number]})"
            case n.Sum():
                return " + ".join(map(self.size, size.parts))
        return str(size)
