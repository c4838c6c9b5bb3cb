"""What a run spends on each of its rules, and the rows that its planner expected, as a text to act on."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter

from derivable.datalog.machine.machine import ROUTE
from derivable.datalog.ram import nodes as m
from derivable.datalog.ram.text import operator_texts
from derivable.datalog.rules import nodes as r
from derivable.datalog.rules.text import rule_text
from derivable.datalog.run.limits import counted

# Rules that the text shows, the most expensive ones.
SHOWN = 40

# So many rounds of an instruction are remembered.
_LAST = 5


# The ways in which the rows of a store are computed, besides shortcuts: over columns; by a kernel that writes
# candidates to columns; by a kernel that the machine calls, see `machine.driver`.
COLUMNS, KERNEL, MACHINE = "columns", "kernel", ROUTE


@dataclass(frozen=True)
class Route:
    """The way in which a store ran, `columns (no kernel: too few rows; it needs thousands)`.

    name    `COLUMNS`, `KERNEL`, `MACHINE`, or "shortcut" and its name
    reason  why no kernel computed it; empty if one did
    needs   what it would need for one; empty if nothing would help
    """

    name: str
    reason: str = ""
    needs: str = ""

    def __str__(self) -> str:
        needs = f"; it needs {self.needs}" if self.needs else ""
        return self.name + (f" (no kernel: {self.reason}{needs})" if self.reason else "")


@dataclass
class Effort:
    """What an instruction has cost so far; a context that adds the seconds of its block.

    runs        how often it ran
    candidates  rows that it derived, repeats included
    rows        how many of them were new (of untagged relations; tagged ones are added up first)
    estimates   rows of each operator, from the first, that were expected of its first run
    last        (round, rows) of the last rounds in which it derived something; of tagged relations candidates
    route       how its rows were computed in the end
    since       (round, rows of its stratum before it) from which it runs instead of another order of its rule
    """

    instruction: m.Instruction
    stratum: int = 0
    seconds: float = 0.0
    runs: int = 0
    candidates: int = 0
    rows: int = 0
    estimates: Sequence[float] = ()
    began: float = 0.0
    is_running: bool = False
    last: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_LAST))
    route: Route = field(default_factory=lambda: Route(""))
    since: tuple[int, int] | None = None

    def by(self, name: str) -> None:
        """It computes its rows in this way now."""
        if name != self.route.name:
            self.route = Route(name)

    def grew(self, number: int, rows: int) -> None:
        """It derived this number of rows in a round."""
        self.last.append((number, rows))

    def recent_growth(self, number: int) -> int:
        """What it derived in the last rounds before and with this one."""
        return sum(rows for round_number, rows in self.last if round_number > number - _LAST)

    def growth_text(self) -> str:
        """`added 3 tuples in its last round`"""
        rows = [rows for _, rows in self.last]
        if not rows:
            return f"has run for {perf_counter() - self.began:.1f} s"
        if len(rows) == 1:
            return f"added {rows[0]:,}"
        if len(set(rows)) == 1:
            return f"added {rows[0]:,} in each of its last {len(rows)} rounds"
        shown = f"{', '.join(f'{n:,}' for n in rows[:-1])} and {rows[-1]:,}"
        return f"added {shown} in its last {len(rows)} rounds"

    def __enter__(self) -> Effort:
        self.runs += 1
        self.is_running = True
        self.began = perf_counter()
        return self

    def __exit__(self, kind: type | None, *_) -> None:
        # An error names the instruction that it went through.
        self.is_running = kind is not None
        self.seconds += perf_counter() - self.began


@dataclass
class StratumEffort:
    """Of a stratum: its rounds, the rows that its rules added, and all its seconds, merging included.

    size  the rows that its relations have in the end, those of facts included
    note  in what its recursion ended, if that was no log
    """

    rounds: int = 0
    rows: int = 0
    size: int = 0
    seconds: float = 0.0
    note: str = ""


@dataclass
class Profile:
    """What a run has spent.

    strata   of each stratum
    rules    of each instruction that ran
    counts   rows that each operator gave, by its identity, if they were counted
    from_earlier  whether an exact run has read the tuples and the circuit of an earlier one, and ran no rule
    """

    ram: m.Ram
    strata: Sequence[StratumEffort]
    rules: Sequence[Effort]
    counts: Mapping[int, int] | None = None
    from_earlier: bool = False

    def __str__(self) -> str:
        return "\n".join(_Text(self).lines())

    @property
    def seconds(self) -> float:
        return sum(stratum.seconds for stratum in self.strata)

    def with_counts(self, other: Profile) -> Profile:
        """These seconds and routes, with the rows that another run over the same facts has counted and expected."""
        # Runs of one program share its instructions.
        timed = {id(effort.instruction): effort for effort in self.rules}
        timed_rules = [timed.get(id(effort.instruction), effort) for effort in other.rules]
        rules = [replace(e, seconds=t.seconds, route=t.route) for e, t in zip(other.rules, timed_rules)]
        return Profile(self.ram, self.strata, rules, other.counts)


@dataclass
class _Rule:
    """All instructions of one rule: one with `or` or recursion has several."""

    title: str
    stratum: int
    efforts: list[Effort] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        return sum(effort.seconds for effort in self.efforts)


class _Text:
    def __init__(self, profile: Profile):
        self.profile = profile
        self.source = profile.ram.text.splitlines()
        rule_of_title: dict[tuple[str, int], _Rule] = {}
        for effort in profile.rules:
            title = self.title(rule_of(effort.instruction))
            entry = rule_of_title.setdefault((title, effort.stratum), _Rule(title, effort.stratum))
            entry.efforts.append(effort)
        self.rules = sorted(rule_of_title.values(), key=lambda entry: -entry.seconds)

    def title(self, rule) -> str:
        """`line 3: rel path(x, y) = ...`, or the core rule if it stands in no line of the program."""
        line = rule.span.line
        if line <= len(self.source) and not rule.relation.startswith("#"):
            return f"line {line}: {self.source[line - 1].strip()}"
        return f"line {line}: {rule_text(rule)}"

    def lines(self) -> list[str]:
        profile = self.profile
        total = sum(entry.seconds for entry in self.rules)
        count = len(profile.strata)
        lines = [f"{count} {'stratum' if count == 1 else 'strata'}, {_seconds(profile.seconds)}"]
        if profile.from_earlier:
            lines.append("no rule ran: an earlier run over the same facts has left its tuples and its circuit")
        if self.rules:
            first = self.rules[0]
            part = f" ({first.seconds / total:.0%} of all rules)" if total else ""
            lines.append(f"most expensive: {first.title}, {_seconds(first.seconds)}{part}")
        with_rules = {entry.stratum for entry in self.rules}
        for number, (stratum, effort) in enumerate(zip(profile.ram.strata, profile.strata)):
            if number not in with_rules and effort.seconds < 0.05:
                continue
            kind = f" (recursive, {counted(effort.rounds, 'round')})" if stratum.loop else ""
            names = [name for name in stratum.relations if not name.startswith("#")] or list(stratum.relations)
            shown = ", ".join(names[:8]) + (f", ... {len(names)} in all" if len(names) > 8 else "")
            rows = counted(max(effort.rows, effort.size), "row")
            lines.append(f"stratum {number}{kind}: {shown}; {rows}, {_seconds(effort.seconds)}")
            if effort.note:
                lines.append(f"  {effort.note}")
        for entry in self.rules[:SHOWN]:
            lines += ["", f"{_seconds(entry.seconds)}  stratum {entry.stratum}, {entry.title}"]
            for effort in entry.efforts:
                lines += self.instruction(effort)
        if len(self.rules) > SHOWN:
            rest = self.rules[SHOWN:]
            lines += ["", f"... {len(rest)} more rules, {_seconds(sum(entry.seconds for entry in rest))}"]
        return lines

    def instruction(self, effort: Effort) -> list[str]:
        head = f"  {counted(effort.runs, 'run')}, {counted(effort.candidates, 'candidate')}"
        head += f", {effort.rows:,} new" if effort.rows else ""
        head += f"; by {effort.route}" if effort.route.name else ""
        if effort.since is not None:
            number, rows = effort.since
            head = f"  new order from round {number:,} on, at {counted(rows, 'row')}: {head.lstrip()}"
        if not isinstance(effort.instruction, m.Store):
            return [head]
        nodes = effort.instruction.query.operators
        table = [("estimated", "a run", "in all", "")]
        for index, (node, text) in enumerate(zip(nodes, operator_texts(nodes))):
            actual = None if self.profile.counts is None else self.profile.counts.get(id(node), 0)
            expected = f"{effort.estimates[index]:,.0f}" if index < len(effort.estimates) else "-"
            mean = "-" if actual is None else f"{actual / max(effort.runs, 1):,.0f}"
            table.append((expected, mean, "-" if actual is None else f"{actual:,}", text))
        widths = [max(len(row[c]) for row in table) for c in range(3)]
        rows = [[text.rjust(width) for text, width in zip(row, widths)] + [row[3]] for row in table]
        return [head, *(f"    {'  '.join(row).rstrip()}" for row in rows)]


def rule_of(instruction: m.Instruction) -> r.Clause | m.AggregateRule:
    """The rule that an instruction is of."""
    if isinstance(instruction, m.Store):
        assert instruction.origin is not None
        return instruction.origin.clause
    return instruction


def _seconds(seconds: float) -> str:
    return f"{seconds:.3f} s"
