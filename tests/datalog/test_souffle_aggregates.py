"""Aggregates of Soufflé's programs, drawn at random, against going through all rows of their bodies."""

import operator
import random

import pytest

import derivable as dv

WIDTHS = {"a": 1, "b": 2, "c": 3}
COMPARISONS = {"<": operator.lt, "!=": operator.ne, ">=": operator.ge}
DECLARED = ".decl a(p:number)\n.decl b(p:number, q:number)\n.decl c(p:number, q:number, s:number)\n"


class Drawn:
    """`o(x, n) :- a(x), n = OP TARGET : { BODY }.` over random facts; `x` may be used in the body."""

    def __init__(self, seed):
        drawn = random.Random(seed)
        values = range(4)
        self.facts = {
            name: {tuple(drawn.choice(values) for _ in range(width)) for _ in range(drawn.randrange(8))}
            for name, width in WIDTHS.items()
        }
        self.operator = drawn.choice(["count", "sum", "min", "max"])
        inner: list[str] = []
        while not inner:
            self.atoms = [self.atom(drawn, ["_", "x", "y", "z", "w", "0", "2"]) for _ in range(drawn.choice([1, 1, 2]))]
            inner = sorted({v for _, arguments in self.atoms for v in arguments if v in ("y", "z", "w")})
        known = [*inner, "x"]
        self.negated = self.atom(drawn, ["_", *known]) if drawn.random() < 0.4 else None
        self.condition = (
            (drawn.choice(known), drawn.choice(list(COMPARISONS)), drawn.choice(known))
            if drawn.random() < 0.5
            else None
        )
        self.target, self.factor = drawn.choice(inner), drawn.choice([1, 1, 3])
        parts = [f"{name}({', '.join(arguments)})" for name, arguments in self.atoms]
        if self.negated is not None:
            parts.append(f"!{self.negated[0]}({', '.join(self.negated[1])})")
        if self.condition is not None:
            parts.append(" ".join(self.condition))
        drawn.shuffle(parts)
        target = "" if self.operator == "count" else f"{self.target} * {self.factor} - 1"
        self.text = DECLARED + "".join(
            f"{name}({', '.join(map(str, row))}).\n" for name, rows in self.facts.items() for row in sorted(rows)
        )
        self.text += ".decl o(x:number, n:number)\n.output o\n"
        self.text += f"o(x, n) :- a(x), n = {self.operator} {target} : {{ {', '.join(parts)} }}.\n"

    @staticmethod
    def atom(drawn, choices):
        name = drawn.choice(list(WIDTHS))
        return name, [drawn.choice(choices) for _ in range(WIDTHS[name])]

    def expected(self):
        found = set()
        for (x,) in self.facts["a"]:
            rows = {(tuple(sorted(names.items())), unnamed) for names, unnamed in self.rows({"x": x}, (), 0)}
            values = [dict(names)[self.target] * self.factor - 1 for names, _ in rows]
            if self.operator == "count":
                found.add((x, len(rows)))
            elif self.operator == "sum":
                found.add((x, sum(values)))
            elif values:
                found.add((x, min(values) if self.operator == "min" else max(values)))
        return found

    def rows(self, names, unnamed, place):
        """What the variables and the wildcards of the atoms from a place on may be."""
        if place == len(self.atoms):
            if self.holds(names):
                yield names, unnamed
            return
        relation, arguments = self.atoms[place]
        for row in self.facts[relation]:
            made, rest = dict(names), unnamed
            for argument, value in zip(arguments, row):
                if argument == "_":
                    rest = (*rest, value)
                elif (int(argument) if argument.isdigit() else made.setdefault(argument, value)) != value:
                    break
            else:
                yield from self.rows(made, rest, place + 1)

    def holds(self, names):
        if self.condition is not None:
            left, sign, right = self.condition
            if not COMPARISONS[sign](names[left], names[right]):
                return False
        if self.negated is None:
            return True
        relation, arguments = self.negated
        return not any(
            all(a in ("_",) or names[a] == v for a, v in zip(arguments, row)) for row in self.facts[relation]
        )


def check(seed):
    drawn = Drawn(seed)
    assert set(dv.Program.from_souffle(drawn.text).run()["o"]) == drawn.expected(), drawn.text


@pytest.mark.parametrize("seed", range(40))
def test_aggregates_are_over_all_rows_of_their_bodies(seed):
    check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_many_aggregates_are_over_all_rows_of_their_bodies(part):
    for seed in range(100):
        check(1000 + 100 * part + seed)


def test_an_equality_of_two_expressions_is_a_key_of_the_join():
    text = """
    .decl a(x:number)
    .decl b(y:number)
    .decl c(x:number, y:number)
    c(x, y) :- a(x), b(y), x + 1 = y * 2.
    .output c
    """
    program = dv.Program.from_souffle(text)
    assert "#key_" in program.explain("optimise")
    found = program.run({"a": list(range(50)), "b": list(range(50))})
    assert set(found["c"]) == {(2 * y - 1, y) for y in range(1, 26)}
