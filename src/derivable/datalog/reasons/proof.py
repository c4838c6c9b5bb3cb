"""Proofs and reasons as data, and as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, TypeVar

Node = TypeVar("Node")


@dataclass(frozen=True, eq=False)
class Proof:
    """A node of a proof tree: what holds, and why.

    kind         "rule": a tuple that a rule derives; "fact": a fact of the program or the run; "aggregate": the result
                 of an aggregate over the rows that are its premises; "row": such a row, of several premises; "absent":
                 a negated atom, which is not in the table, or not in every world; "condition": a comparison or a
                 foreign predicate; "chance": the coin of a rule with a probability
    text         the node as the language writes it, `path(3, 1)` or `2 < 3`
    relation     of a tuple, and its values, row; None for what is none
    rule         the rule, as the program writes it, or where a fact comes from; line, source: where that stands
    bindings     variable of the rule -> its value
    probability  the probability of all random facts and coins that the node stands on, each counted once; None where an
                 aggregate or a negation depends on random facts in a way that is no product
    premises     one node for each literal of the rule's body, in its order. A node that is used twice is one object
    more         rows of an aggregate that are not among the premises

    `str` is the tree as text, and a notebook shows it with parts that open at a click; `svg()` is a picture.
    """

    kind: Literal["rule", "fact", "aggregate", "row", "absent", "condition", "chance"]
    text: str
    relation: str | None = None
    row: tuple[Any, ...] | None = None
    rule: str | None = None
    line: int | None = None
    source: str | None = None
    bindings: Mapping[str, Any] = field(default_factory=dict)
    probability: float | None = 1.0
    premises: tuple[Proof, ...] = ()
    more: int = 0
    is_least: bool = True

    @cached_property
    def height(self) -> int:
        """Rules on the longest way to a fact or an aggregate, whose rows have heights of their own."""
        heights: dict[int, int] = {}
        for node in reversed(self.nodes()):
            below = [heights[id(premise)] for premise in node.premises]
            heights[id(node)] = 0 if node.kind == "aggregate" else int(node.kind == "rule") + max(below, default=0)
        return heights[id(self)]

    def nodes(self) -> list[Proof]:
        """All nodes, each once, each before its premises."""
        # From the right, so that the order is that of the text.
        return postorder(self, _premises)[::-1]

    @cached_property
    def facts(self) -> tuple[Proof, ...]:
        """The facts that the proof stands on, each once."""
        return tuple(node for node in self.nodes() if node.kind == "fact")

    def __str__(self) -> str:
        return "\n".join(lines_of(self))

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """All nodes as dictionaries, `{"nodes": [...]}`, the first that of the proof; premises are their numbers."""
        nodes = self.nodes()
        number = {id(node): number for number, node in enumerate(nodes)}
        return {"nodes": [_fields(node, [number[id(premise)] for premise in node.premises]) for node in nodes]}

    def _repr_html_(self) -> str:
        from derivable.datalog.reasons.show import proof_html

        return proof_html(self)

    def svg(self) -> str:
        """A picture of the tree, as SVG."""
        from derivable.datalog.reasons.show import proof_svg

        return proof_svg(self)


class Proofs(Sequence):
    """Proofs of one tuple, the most probable first; is_complete says whether all proofs were searched."""

    def __init__(self, proofs: Sequence[Proof], is_complete: bool):
        self._proofs, self.is_complete = tuple(proofs), is_complete

    def __getitem__(self, index: Any) -> Any:
        return self._proofs[index]

    def __len__(self) -> int:
        return len(self._proofs)

    def __str__(self) -> str:
        parts = [f"{number}. {proof}" for number, proof in enumerate(self, 1)]
        if not self.is_complete:
            parts.append("more proofs than were searched: there may be more probable ones")
        return "\n\n".join(parts)

    __repr__ = __str__

    def to_dict(self) -> dict[str, Any]:
        return {"proofs": [proof.to_dict() for proof in self], "is_complete": self.is_complete}

    def _repr_html_(self) -> str:
        parts = [f"<li>{proof._repr_html_()}</li>" for proof in self]
        return f"<ol>{''.join(parts)}</ol>"


@dataclass(frozen=True, eq=False)
class Attempt:
    """A rule that might have derived a tuple, and how far it comes.

    rule, line, source  the rule as the program writes it, and where
    bindings  variable -> value, as far as the literals go that hold
    held      the literals that hold together, as the language writes them
    failed    the first literal that does not hold with them; None if the head itself does not fit the tuple
    relation, row  of a failed atom, None in the row for what is not bound
    because   why it fails, to the depth of the question: the reasons of an atom's own rules, or the proof of a negated
              one
    """

    rule: str
    line: int | None
    source: str | None
    bindings: Mapping[str, Any]
    held: tuple[str, ...]
    failed: str | None
    relation: str | None = None
    row: tuple[Any, ...] | None = None
    because: Absence | Proof | None = None


@dataclass(frozen=True, eq=False)
class Absence:
    """Why a tuple does not hold: for each rule of its relation how far it comes, the one that comes farthest first."""

    text: str
    relation: str
    row: tuple[Any, ...]
    attempts: tuple[Attempt, ...]

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """The attempts as dictionaries."""
        attempts = []
        for attempt in self.attempts:
            known = _fields(attempt, [])
            known["because"] = None if attempt.because is None else attempt.because.to_dict()
            attempts.append(known)
        return {"text": self.text, "relation": self.relation, "row": list(self.row), "attempts": attempts}

    def _lines(self) -> Iterator[str]:
        yield f"{self.text} does not hold"
        if not self.attempts:
            yield f"└─ no rule has the head `{self.relation}`, and it is no fact"
        for index, attempt in enumerate(self.attempts):
            is_last = index == len(self.attempts) - 1
            before, indent = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
            yield f"{before}{attempt.rule}{line_text(attempt.line, attempt.source)}"
            rows = [f"holds: {text}" for text in attempt.held]
            if attempt.failed is None:
                rows.append("the head does not fit the tuple")
            else:
                rows.append(f"fails: {attempt.failed}")
            yield from (f"{indent}{row}" for row in rows)
            if attempt.because is not None:
                yield from (f"{indent}  {line}" for line in str(attempt.because).split("\n"))

    def _repr_html_(self) -> str:
        from derivable.datalog.reasons.show import absence_html

        return absence_html(self)


def _premises(node: Proof) -> tuple[Proof, ...]:
    return node.premises


def postorder(root: Node, needs: Callable[[Node], Iterable[Node]]) -> list[Node]:
    """A node and all behind it, each once, each after those that it needs, of which the last ones come first."""
    nodes: list[Node] = []
    seen: set[Node] = set()
    stack = [(root, False)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            nodes.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(need, False) for need in needs(node) if need not in seen]
    return nodes


def _fields(node: Proof | Attempt, premises: list[int]) -> dict[str, Any]:
    """What a node has, but for other nodes."""
    known = {one.name: getattr(node, one.name) for one in fields(node) if one.name != "because"}
    for name in ("row", "held"):
        if known.get(name) is not None:
            known[name] = list(known[name])
    return known | ({"premises": premises} if isinstance(node, Proof) else {}) | {"bindings": dict(node.bindings)}


def line_text(line: int | None, source: str | None) -> str:
    if line is None:
        return ""
    return f"  (line {line})" if source in (None, "<program>") else f"  ({source}:{line})"


def node_text(node: Proof) -> str:
    """A node with its probability, where that says something."""
    chance = "" if node.probability in (1.0, None) or node.kind == "absent" else f"{node.probability:.6g}::"
    return f"{chance}{node.text}"


def reason_text(node: Proof) -> str:
    """What stands behind a node in its line: the rule, or where the fact comes from."""
    line = line_text(node.line, node.source)
    match node.kind:
        case "rule":
            return f"by {node.rule}{line}"
        case "fact" if node.rule:
            return f"{node.rule}{line}"
        case "aggregate":
            count = len(node.premises) + node.more
            may_be = " that may be there" if node.probability is None else ""
            return f"of {count:,} row{'' if count == 1 else 's'}{may_be}"
        case "absent":
            return "not in the table" if node.probability == 1.0 else "not in every world"
    return ""


def lines_of(proof: Proof) -> list[str]:
    """The tree as lines; what was shown before is not shown again."""
    lines: list[str] = []
    shown: set[int] = set()
    stack: list[tuple[Proof, str, str]] = [(proof, "", "")]
    while stack:
        node, before, indent = stack.pop()
        text = f"{before}{node_text(node)}"
        if node.premises and id(node) in shown:
            lines.append(f"{text}  as above")
            continue
        shown.add(id(node))
        reason = reason_text(node)
        lines.append(f"{text}  {reason}" if reason else text)
        rows = list(node.premises)
        for index, premise in reversed(list(enumerate(rows))):
            is_last = index == len(rows) - 1 and not node.more
            stack.append((premise, indent + ("└─ " if is_last else "├─ "), indent + ("   " if is_last else "│  ")))
        if node.more:
            note = Proof("row", f"… {node.more:,} more rows")
            stack.insert(len(stack) - len(rows), (note, indent + "└─ ", indent + "   "))
    if not proof.is_least:
        lines.append("the search ended before it was known that no proof is lower")
    return lines
