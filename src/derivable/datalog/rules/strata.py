"""Strata: relations in the order in which they can be computed.

A stratum is a strongly connected component of the dependency graph; a relation is computed after everything it
depends on through negation or aggregation, and together with what it is mutually recursive with.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

from derivable.core.diagnostics import LayoutError, StratificationError
from derivable.core.graph import from_edges, strongly_connected_components
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.monotone import misuse
from derivable.datalog.rules.text import rule_text

if TYPE_CHECKING:
    from derivable.datalog.rules.timed import Timed


@dataclass(frozen=True)
class Stratum:
    """`stratum 2 (recursive): path` and its rules; `timed` if it is computed one time after the other."""

    relations: tuple[str, ...]
    rules: tuple[r.Rule, ...]
    is_recursive: bool
    timed: Timed | None = None


@dataclass(frozen=True)
class Strata:
    """The core program with its rules in strata, dependencies first."""

    program: r.Rules
    strata: tuple[Stratum, ...]


def reached(start: Iterable[str], after: Mapping[str, Iterable[str]]) -> set[str]:
    """The names that ways lead to from some, and these."""
    queue = list(start)
    names = set(queue)
    while queue:
        new = {name for name in after.get(queue.pop(), ()) if name not in names}
        names |= new
        queue += new
    return names


def needed_for(program: r.Rules, names: Iterable[str]) -> set[str]:
    """The relations that these depend on, and these."""
    targets: dict[str, list[str]] = {}
    for rule in program.rules:
        targets.setdefault(rule.relation, []).extend(target for target, _ in rule.dependencies)
    return reached(names, targets)


def dependents(program: r.Rules, names: Iterable[str]) -> set[str]:
    """The relations that depend on one of these, and these."""
    users: dict[str, list[str]] = {}
    for rule in program.rules:
        for target, _ in rule.dependencies:
            users.setdefault(target, []).append(rule.relation)
    return reached(names, users)


@dataclass(frozen=True)
class Cycles:
    """The dependency graph of rules, and its strongly connected components.

    edges  relation -> the relations that it depends on, with the kind of `Clause.dependencies`, "lattice" where it
           needs what the lattice has at the end
    parts  the components, dependencies first
    component_of relation -> the number of its component
    """

    edges: Mapping[str, Mapping[str, str | None]]
    parts: list[set[str]]
    component_of: Mapping[str, int]

    @property
    def broken(self) -> set[int]:
        """The components that a negation or an aggregate is inside of."""
        return {
            self.component_of[head]
            for head, targets in self.edges.items()
            for target, kind in targets.items()
            if kind and self.component_of[head] == self.component_of[target]
        }


def cycles(relations: Mapping[str, r.Relation], rules: Sequence[r.Rule]) -> Cycles:
    """The cycles of relations in these rules."""
    edges: dict[str, dict[str, str | None]] = {name: {} for name in relations}
    for rule in rules:
        for target, kind in rule.dependencies:
            edges[rule.relation][target] = edges[rule.relation].get(target) or kind
    parts = _components(edges)
    component_of = {name: i for i, part in enumerate(parts) for name in part}
    for rule, atom in _lattice_atoms(relations, rules):
        # A rule outside of the recursion reads what the lattice has at the end.
        if component_of[rule.relation] != component_of[atom.relation] or misuse(rule, atom, relations):
            edges[rule.relation][atom.relation] = edges[rule.relation][atom.relation] or "lattice"
    return Cycles(edges, parts, component_of)


def _lattice_atoms(relations: Mapping[str, r.Relation], rules: Iterable[r.Rule]) -> Iterator[tuple[r.Clause, r.Atom]]:
    """The clauses and atoms that read relations with a lattice."""
    names = {name for name, relation in relations.items() if relation.lattice is not None}
    if not names:
        return
    for rule in rules:
        if isinstance(rule, r.Clause):
            for literal in rule.body:
                if isinstance(literal, r.Atom) and literal.relation in names:
                    yield rule, literal


def stratify(program: r.Rules, goal: str | None = None) -> Strata:
    """Strata of a program. Raises StratificationError, which prints the cycle, if negation is inside a cycle that does
    not go forward in time (`rules.timed`).

    goal  a relation whose first tuple ends a run: what it depends on through atoms alone is one stratum with it, so
          that each round may find the tuple; what it does not need comes last
    """
    cyclic = cycles(program.relations, program.rules)
    edges, parts, position = cyclic.edges, cyclic.parts, cyclic.component_of
    from derivable.datalog.rules.timed import timed

    by_time: dict[str, Timed] = {}
    for rule in program.rules:
        for target, kind in rule.dependencies:
            part = parts[position[target]]
            if kind is None or rule.relation not in part or target in by_time:
                continue
            made = timed(program, part)
            if made is None or isinstance(made, str):
                _fail(program, rule, target, kind, edges, part, made)
            by_time |= dict.fromkeys(part, made)
    for rule, atom in _lattice_atoms(program.relations, program.rules):
        if position[atom.relation] == position[rule.relation]:
            wrong = misuse(rule, atom, program.relations)
            if wrong is not None:
                hint = f"read `{atom.relation}` so in a rule outside of its recursion, when it is complete"
                message = f"a recursion does not follow the lattice of `{atom.relation}`: {wrong[1]}"
                program.error(StratificationError, message, wrong[0], hint)
    if goal is not None:
        others = {rule.relation for rule in program.rules if not isinstance(rule, r.Clause)}
        others |= by_time.keys()
        parts = _toward(goal, parts, edges, {rule.relation for rule in program.rules} - others)
        position = {name: i for i, component in enumerate(parts) for name in component}
    rank = {name: i for i, name in enumerate(program.relations)}
    rules_of: list[list[r.Rule]] = [[] for _ in parts]
    for rule in program.rules:
        rules_of[position[rule.relation]].append(rule)
    strata = []
    for component, rules_of_part in zip(parts, rules_of):
        members = tuple(sorted(component, key=rank.__getitem__))
        rules = tuple(rules_of_part)
        is_recursive = any(target in component for rule in rules for target, _ in rule.dependencies)
        strata.append(Stratum(members, rules, is_recursive, by_time.get(members[0])))
    return Strata(program, tuple(strata))


def _toward(
    goal: str, parts: list[set[str]], edges: Mapping[str, Mapping[str, str | None]], derived: set[str]
) -> list[set[str]]:
    """The components in an order in which the goal comes as early as it can, united with those that it reads.

    derived  the relations that clauses define
    """
    readers: dict[str, list[tuple[str, str | None]]] = {}
    for name, targets in edges.items():
        for target, kind in targets.items():
            readers.setdefault(target, []).append((name, kind))
    index = next(i for i, part in enumerate(parts) if goal in part)
    united, before, rest = set(parts[index]), [], parts[index + 1 :]
    if not united <= derived:
        return parts
    apart: set[str] = set()
    for part in reversed(parts[:index]):
        uses = [(name, kind) for target in part for name, kind in readers.get(target, ()) if name not in part]
        kinds = [kind for name, kind in uses if name in united]
        is_needed = bool(kinds) or any(name in apart for name, _ in uses)
        if not is_needed:
            rest.insert(0, part)
        elif part <= derived and not any(kinds) and not any(name in apart for name, _ in uses):
            united |= part
        else:
            # What must be complete before the goal's stratum begins, and so must all that it reads.
            apart |= part
            before.insert(0, part)
    return [*before, united, *rest]


def _components(edges: Mapping[str, Mapping[str, str | None]]) -> list[set[str]]:
    """Strongly connected components, dependencies first."""
    names = list(edges)
    number = {name: position for position, name in enumerate(names)}
    pairs = [(number[name], number[target]) for name, targets in edges.items() for target in targets]
    offsets, targets = from_edges(len(names), [pair[0] for pair in pairs], [pair[1] for pair in pairs])
    component, count = strongly_connected_components(offsets, targets)
    members: list[set[str]] = [set() for _ in range(count)]
    for name, number in zip(names, component.tolist()):
        members[count - 1 - number].add(name)
    return members


def _fail(
    program: r.Rules,
    rule: r.Rule,
    target: str,
    kind: str,
    edges: Mapping[str, Mapping[str, str | None]],
    component: set[str],
    hint: str | None,
) -> NoReturn:
    # A shortest way from the target back to the head closes the cycle.
    previous: dict[str, str | None] = {target: None}
    queue = [target]
    while rule.relation not in previous:
        node = queue.pop(0)
        for following in edges[node]:
            if following in component and following not in previous:
                previous[following] = node
                queue.append(following)
    path: list[str] = [rule.relation]
    while previous[path[-1]] is not None:
        path.append(previous[path[-1]])  # type: ignore[arg-type]
    path.reverse()
    steps = [(rule.relation, kind, target), *((a, edges[a][b], b) for a, b in itertools.pairwise(path))]
    shown = _shown_cycle(steps)
    named = [step[0] for step in steps if not step[0].startswith("#")]
    shown_relation = named[0] if named else rule.relation
    message = (
        f"the program is not stratifiable: `{shown_relation}` depends on itself through "
        f"{'negation' if kind == 'negation' else 'an aggregate'}\n"
        f"  cycle: {shown}"
    )
    program.error(StratificationError, message, rule.span, hint or _hint(rule, kind))


def _hint(rule: r.Rule, kind: str) -> str:
    if kind == "aggregate" and isinstance(rule, r.AggregateRule) and rule.operator in ("min", "argmin"):
        return (
            f"for shortest paths, leave out `{rule.operator}` and give the column of lengths the lattice `min`, as in "
            "`type distance(node: usize, min length: f64)`: the relation keeps the least length of each node"
        )
    return "a relation must be complete before it is negated or aggregated; break the cycle"


def _shown_cycle(steps: list[tuple[str, str | None, str]]) -> str:
    """`a --not--> b --> a`, without auxiliary relations; the way through one has its strongest mark."""
    marks = {"negation": "not", "aggregate": "aggregate", "lattice": "lattice"}
    start = next((i for i, step in enumerate(steps) if not step[0].startswith("#")), 0)
    steps = steps[start:] + steps[:start]
    text, pending = steps[0][0], None
    for _, kind, target in steps:
        pending = kind or pending
        if not target.startswith("#"):
            text += f" --{marks[pending]}--> {target}" if pending else f" --> {target}"
            pending = None
    return text


def strata_text(strata: Strata) -> str:
    """The printer: strata in order, their rules indented."""
    rows = []
    for i, stratum in enumerate(strata.strata):
        how = " (by time)" if stratum.timed else " (recursive)" if stratum.is_recursive else ""
        rows.append(f"stratum {i}{how}: {', '.join(stratum.relations)}")
        rows += [f"  {rule_text(rule)}" for rule in stratum.rules]
    return "\n".join(rows)


def check_strata(strata: Strata) -> None:
    """The validator: every dependency is on an earlier stratum, or positive within one recursive stratum."""
    position = {name: i for i, stratum in enumerate(strata.strata) for name in stratum.relations}
    if set(position) != set(strata.program.relations):
        raise LayoutError("strata and program have different relations")
    for i, stratum in enumerate(strata.strata):
        for rule in stratum.rules:
            if position[rule.relation] != i:
                raise LayoutError(f"`{rule_text(rule)}` is in stratum {i}, its head is not")
            for target, kind in rule.dependencies:
                inside = position[target] == i
                is_early = kind is not None and stratum.timed is None
                if position[target] > i or (inside and (is_early or not stratum.is_recursive)):
                    raise LayoutError(f"`{rule_text(rule)}` depends on {target} in stratum {position[target]}")
