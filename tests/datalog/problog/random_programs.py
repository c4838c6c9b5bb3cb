"""Random programs of ProbLog, and what ProbLog answers."""

from __future__ import annotations

import random
import warnings

import derivable as dv


def answers_of_problog(text: str) -> dict[str, float] | None:
    """Query -> probability; None where ProbLog refuses the program."""
    from problog import get_evaluatable
    from problog.program import PrologString

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = get_evaluatable().create_from(PrologString(text)).evaluate()
        except Exception:
            return None
    return {str(term).replace(", ", ","): float(p) for term, p in found.items()}


def answers_of_ours(text: str) -> dict[str, float]:
    """The same of ours. Raises what ours raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", dv.DerivableWarning)
        program = dv.Program.from_problog(text)
        database = program.run()
    found = {}
    for output, asked in program.shown.absent.items():
        view = database[output]
        types = [t.name for t in view.table.types]
        for row, tag in zip(view, view.tag_list(), strict=True):
            found[program.shown.fact(output, row, types).replace(", ", ",")] = float(tag)
        if not len(view):
            found[asked.replace(", ", ",")] = 0.0
    return found


def differences(theirs: dict[str, float], ours: dict[str, float]) -> list[str]:
    """Where two answers differ by more than 1e-9; an atom that is missing has the probability 0."""
    atoms = sorted({*theirs, *ours})
    return [
        f"{atom}: {theirs.get(atom, 0.0)!r} by ProbLog, {ours.get(atom, 0.0)!r} by ours"
        for atom in atoms
        if abs(theirs.get(atom, 0.0) - ours.get(atom, 0.0)) > 1e-9
    ]


class Generator:
    """One program: layers of predicates, of which each may negate those below and recurse through itself."""

    def __init__(self, seed: int):
        self.random = random.Random(seed)
        self.values = self.random.choice((["a", "b", "c"], ["1", "2", "3"], ["a", "'B c'", "f(a)"], ["1", "2.5", "x"]))
        self.lines: list[str] = []
        self.arity: dict[str, int] = {}

    def probability(self) -> str:
        return self.random.choice(("0.1", "0.25", "0.3", "1/3", "0.5", "0.7", "0.9"))

    def value(self) -> str:
        return self.random.choice(self.values)

    def row(self, name: str) -> str:
        values = [self.value() for _ in range(self.arity[name])]
        return f"{name}({', '.join(values)})" if values else name

    def shares(self, count: int) -> list[str]:
        return self.random.choice(
            [["0.2", "0.3", "0.5"], ["0.1", "0.2", "0.3"], ["1/4", "0.25", "0.5"], ["0.6", "0.1", "0.2"]]
        )[:count]

    def facts(self) -> None:
        for name, arity in (("e", 2), ("p", 1), ("q", 1), ("r", 0)):
            self.arity[name] = arity
            rows = {self.row(name) for _ in range(self.random.randint(1, 4))}
            for row in sorted(rows):
                mark = f"{self.probability()}::" if self.random.random() < 0.7 else ""
                self.lines.append(f"{mark}{row}.")
        if self.random.random() < 0.5:
            rows = sorted({self.row("p") for _ in range(3)} | {self.row("q")})
            shares = self.shares(len(rows))
            self.lines.append("; ".join(f"{share}::{row}" for share, row in zip(shares, rows)) + ".")

    def atom(self, names: list[str], variables: list[str]) -> str:
        name = self.random.choice(names)
        arguments = [
            self.random.choice(variables) if self.random.random() < 0.85 else self.value()
            for _ in range(self.arity[name])
        ]
        return f"{name}({', '.join(arguments)})" if arguments else name

    def rule(self, name: str, below: list[str], same: list[str]) -> None:
        variables = ["X", "Y"] if self.arity[name] == 2 else ["X", "Y"][: self.random.randint(1, 2)]
        positive = [f"e({', '.join(variables)})" if len(variables) == 2 else self.random.choice(("p(X)", "q(X)"))]
        for _ in range(self.random.randint(0, 2)):
            positive.append(self.atom(below + same, variables))
        if self.random.random() < 0.25:
            positive.append(f"({self.atom(below, variables)} ; {self.atom(below, variables)})")
        if self.random.random() < 0.35:
            negated = self.atom(below, variables)
            inside = f"({negated}, {self.atom(below, variables)})" if self.random.random() < 0.3 else negated
            positive.append(f"\\+ {inside}")
        if len(variables) == 2 and self.random.random() < 0.3:
            positive.append(self.random.choice(("X \\== Y", "X \\= Y")))
        body = ", ".join(positive)
        head = f"{name}({', '.join(variables[: self.arity[name]])})" if self.arity[name] else name
        kind = self.random.random()
        if kind < 0.35:
            self.lines.append(f"{head} :- {body}.")
        elif kind < 0.7:
            self.lines.append(f"{self.probability()}::{head} :- {body}.")
        else:
            others = [other for other in same if self.arity[other] <= len(variables)] or [name]
            heads = [head]
            for _ in range(self.random.randint(1, 2)):
                other = self.random.choice(others)
                inside = ", ".join(self.random.sample(variables, self.arity[other]))
                heads.append(f"{other}({inside})" if inside else other)
            shares = self.shares(len(heads))
            self.lines.append("; ".join(f"{s}::{h}" for s, h in zip(shares, heads)) + f" :- {body}.")

    def text(self) -> str:
        self.facts()
        below = ["e", "p", "q", "r"]
        for layer in range(self.random.randint(1, 3)):
            same = [f"s{layer}", f"t{layer}"]
            for name in same:
                self.arity[name] = self.random.choice((0, 1, 1, 2))
            for name in same:
                for _ in range(self.random.randint(1, 2)):
                    self.rule(name, below, same if self.random.random() < 0.5 else [])
            below = below + same
        asked = below[4:]
        if self.random.random() < 0.4:
            name = self.random.choice(below)
            truth = self.random.choice(("true", "false"))
            self.lines.append(f"evidence({self.row(name)}, {truth}).")
        for name in asked:
            rows = ", ".join("XY"[: self.arity[name]])
            self.lines.append(f"query({name}({rows}))." if rows else f"query({name}).")
        if self.random.random() < 0.3:
            self.lines.append(f"query({self.row(self.random.choice(asked))}).")
        return "\n".join(self.lines) + "\n"


def mutated(text: str, seed: int) -> str:
    """The text with a few characters or lines gone, doubled, exchanged or others."""
    chosen = random.Random(seed)
    for _ in range(chosen.randint(1, 3)):
        i = chosen.randrange(len(text))
        j = min(len(text), i + chosen.randint(1, 6))
        kind = chosen.randrange(4)
        if kind == 0:
            text = text[:i] + text[j:]
        elif kind == 1:
            text = text[:j] + text[i:]
        elif kind == 2:
            text = text[:i] + chosen.choice(".,;()[]|:-\\+'\"%/*0X_ \n") + text[i + 1 :]
        else:
            k = chosen.randrange(len(text))
            text = text[:i] + text[k : k + 4] + text[j:]
        text = text or "a."
    return text


def list_program(seed: int) -> str:
    """A program whose rules call predicates of lists with lists of what is bound."""
    drawn = random.Random(seed)
    lines = [":- use_module(library(lists))."]
    for i in range(1, 4):
        lines.append(f"{drawn.choice(['0.5::', '0.3::', ''])}x({i}). 0.4::y({drawn.choice('abc')}).")

    def items() -> str:
        return f"[{','.join(drawn.choice('AB17') for _ in range(drawn.randint(0, 3)))}]"

    queries = []
    for k in range(drawn.randint(2, 4)):
        goals = [
            f"member(Z,{items()})",
            f"append({items()},{items()},Z)",
            f"length({items()},Z)",
            f"A < B, reverse({items()},Z)",
            f"sum_list({items()},Z)",
            "y(C), Z = f(A,g(C)), \\+ x(9)",
            f"L = {items()}, L = [Z|_]",
            f"nth0(Z,{items()},B)",
            f"last({items()},Z)",
        ]
        tag = "0.6::" if drawn.random() < 0.3 else ""
        lines.append(f"{tag}p{k}(Z) :- x(A), x(B), {drawn.choice(goals)}.")
        queries.append(f"query(p{k}(_)).")
        if drawn.random() < 0.4:
            lines.append(f"r{k}(Z) :- p{k}(Z), \\+ p{k}(7).")
            queries.append(f"query(r{k}(_)).")
        if drawn.random() < 0.3:
            lines.append(f"s{k}(H) :- p{k}([H|_]).")
            queries.append(f"query(s{k}(_)).")
    return "\n".join([*lines, *queries])
