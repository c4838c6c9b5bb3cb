"""Random programs as text: typed, stratified, ending without demand, with most of what the language has.

`sources()` draws a `Source`, which writes itself as a program with other queries and demand patterns, and the facts
that go with it. Relations are i32 and String; integers stay within 0 to 4, because whatever computes a new one is
guarded, so that every relation is finite. What a rule negates or aggregates is above it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from hypothesis import strategies as st

INPUTS = {"e": "ii", "u": "i", "s": "it"}
TYPES = {"i": "i32", "t": "String"}
LIMIT = 4
TEXTS = ["a", "b", "c"]
VARIABLES = {"i": ["x", "y", "z", "w"], "t": ["m", "n"]}


@dataclass
class Source:
    """A program: relations with their column types (`i`, `t`), rules in order of strata, and facts of the inputs."""

    relations: dict[str, str]
    rules: list[str] = field(default_factory=list)

    @property
    def derived(self) -> list[str]:
        return [name for name in self.relations if name not in INPUTS]

    def text(self, queries: list[str] | tuple[str, ...] = (), demand: dict[str, str] | None = None) -> str:
        rows = []
        for name, types in self.relations.items():
            marks = (demand or {}).get(name, "f" * len(types))
            columns = [("bound " if mark == "b" else "") + TYPES[t] for mark, t in zip(marks, types)]
            rows.append(f"type {name}({', '.join(columns)})")
        return "\n".join([*rows, *self.rules, *(f"query {query}" for query in queries)])


def constants(kind: str) -> st.SearchStrategy[str]:
    if kind == "i":
        return st.integers(0, 3).map(str)
    return st.sampled_from([f'"{text}"' for text in TEXTS])


class _Rule:
    """A rule under construction; `bound` are the variables that its positive atoms bind."""

    def __init__(self, draw, relations: dict[str, str], head: str, above: list[str]):
        self.draw, self.relations, self.head, self.above = draw, relations, head, above
        self.bound: dict[str, str] = {}
        self.literals: list[str] = []

    def pick(self, *options):
        return self.draw(st.sampled_from(options))

    def rarely(self) -> bool:
        return self.draw(st.integers(0, 4)) == 0

    def value(self, kind: str) -> str:
        """Something bound or constant."""
        known = [name for name, k in self.bound.items() if k == kind]
        return self.pick(*known) if known and not self.rarely() else self.draw(constants(kind))

    def atom(self, name: str) -> str:
        arguments = []
        fresh: dict[str, str] = {}
        for kind in self.relations[name]:
            if self.rarely():
                arguments.append(self.pick("_", self.draw(constants(kind))))
                continue
            variable = self.pick(*VARIABLES[kind])
            if kind == "i" and variable in self.bound and self.rarely():
                # An expression: x + 1 of a bound x.
                arguments.append(f"{variable} {self.pick('+', '-')} 1")
                continue
            fresh[variable] = kind
            arguments.append(variable)
        self.bound |= fresh
        return f"{name}({', '.join(arguments)})"

    def negated(self) -> str:
        name = self.pick(*self.above)
        arguments = ["_" if self.rarely() else self.value(kind) for kind in self.relations[name]]
        return f"not {name}({', '.join(arguments)})"

    def compared(self) -> str:
        return f"{self.value('i')} {self.pick('<', '<=', '!=', '==', '>=')} {self.value('i')}"

    def aggregated(self) -> str:
        """A new variable for an aggregate over a relation above, grouped by what is bound or by nothing."""
        name = self.pick(*self.above)
        arguments, inner = [], []
        for position, kind in enumerate(self.relations[name]):
            known = [v for v, k in self.bound.items() if k == kind]
            if known and self.draw(st.booleans()):
                arguments.append(self.pick(*known))
            else:
                arguments.append(f"q{position}")
                inner.append((f"q{position}", kind))
        numbers = [v for v, kind in inner if kind == "i"]
        formula = f"{name}({', '.join(arguments)})"
        if not inner:
            return f"{self.pick('', 'not ')}exists({formula})"
        kind = self.pick("count", "exists", "forall", *(["min", "max"] if numbers else []))
        if kind == "exists":
            return f"{self.pick('', 'not ')}exists({', '.join(v for v, _ in inner)}: {formula})"
        if kind == "forall":
            (first, k), *_ = inner
            unequal = f"{first} != {self.draw(constants(k))}"
            return f"forall({', '.join(v for v, _ in inner)}: {formula} implies {unequal})"
        result = "a0" if kind == "count" else "a1"
        if result in self.bound or any(result in literal for literal in self.literals):
            return self.compared()
        if kind == "count":
            return f"a0 := count({', '.join(v for v, _ in inner)}: {formula}), a0 < {self.pick('2', '3', '5')}"
        self.bound["a1"] = "i"
        return f"a1 := {kind}({numbers[0]}: {formula})"

    def body(self, names: list[str]) -> list[str]:
        # Three atoms are rare: an interpreter that tries all rows of all of them takes its time.
        positive = [self.atom(self.pick(*names)) for _ in range(self.pick(1, 1, 2, 2, 2, 3))]
        rest = []
        for _ in range(self.draw(st.integers(0, 2))):
            rest.append(self.pick(self.compared, self.compared, self.negated, self.aggregated)())
            self.literals += rest
        return self.draw(st.permutations([*positive, *rest]))

    def head_term(self, kind: str) -> tuple[str, str | None]:
        """A term of the head, and a guard if it computes."""
        term = self.value(kind)
        known = [name for name, k in self.bound.items() if k == "i"]
        if kind == "i" and known and self.rarely():
            x = self.pick(*known)
            return self.pick(
                (f"{x} + 1", f"{x} < {LIMIT}"),
                (f"{x} - 1", f"{x} > 0"),
                (f"if {x} > 2 then 0 else {x}", None),
            )
        return term, None

    def text(self, names: list[str]) -> str:
        body = self.body(names)
        terms = [self.head_term(kind) for kind in self.relations[self.head]]
        guards = [guard for _, guard in terms if guard]
        formula = ", ".join([*body, *guards])
        return f"rel {self.head}({', '.join(term for term, _ in terms)}) = {formula}"


@st.composite
def sources(draw, max_relations: int = 4, max_rules: int = 3, rule: type[_Rule] = _Rule) -> Source:
    """A program of up to `max_relations` derived relations with up to `max_rules` rules each, recursive at will."""
    relations = dict(INPUTS)
    rules = []
    for i in range(draw(st.integers(1, max_relations))):
        name = f"p{i}"
        above = list(relations)
        relations[name] = draw(st.sampled_from(["i", "ii", "ii", "it", "iit", "ti"]))
        for _ in range(draw(st.integers(1, max_rules))):
            recursive = draw(st.booleans())
            rules.append(rule(draw, relations, name, above).text([*above, *[name] * (i + 2)] if recursive else above))
    return Source(relations, rules)


class RichRule(_Rule):
    """A rule with disjunctions, ranges, equations, functions and more aggregates as well."""

    def compared(self) -> str:
        plain = super().compared
        return self.pick(plain, self.disjoined, self.ranged, self.window, self.equation, self.totalled, plain)()

    def window(self) -> str:
        """Bounds of an integer by others, which may be bound in another atom."""
        x, y = self.integer(), self.integer()
        low = self.pick(f"{y} >= {x}", f"{y} > {x} - 2", f"{x} <= {y}", "0 < " + y)
        return f"{low} and {self.pick(f'{y} < {x} + 2', f'{x} + 1 >= {y}', f'{y} <= 3', f'{y} != {x}')}"

    def integer(self) -> str:
        known = [name for name, kind in self.bound.items() if kind == "i"]
        return self.pick(*known) if known else self.draw(constants("i"))

    def disjoined(self) -> str:
        """Two atoms that bind the same variables."""
        pairs = [name for name in self.above if self.relations[name] == "ii"]
        a, b = self.pick(*VARIABLES["i"]), self.pick(*VARIABLES["i"])
        first, second = self.pick(*pairs), self.pick(*pairs)
        self.bound |= {a: "i", b: "i"}
        rest = self.pick("", f" and {a} != {self.draw(constants('i'))}")
        return f"({first}({a}, {b}) or ({second}({b}, {a}){rest}))"

    def ranged(self) -> str:
        name = self.pick(*VARIABLES["i"])
        low, high = self.pick("0", "1"), self.pick("3", "4")
        self.bound[name] = "i"
        known = [other for other, kind in self.bound.items() if kind == "i" and other != name]
        low = self.pick(*known) if known and self.rarely() else low
        return self.pick(f"{name} in {low}..{high}", f"{name} in {low}..={high}", f"range<i32>({low}, {high}, {name})")

    def equation(self) -> str:
        x, y = self.integer(), self.integer()
        return self.pick(
            f"{x} == $max({x}, {y})",
            f"$abs({x} - {y}) < 2",
            f"{x} + {y} <= 4 and not ({x} == 1 or {y} == 2)",
            f"({x} > 2) == ({y} > 2)",
            f"{x} / 2 == {y} % 3",
            f"(if {x} == {y} then 1 else {x} * 2) < 5",
        )

    def totalled(self) -> str:
        """A sum, or who has the most, over pairs above, with groups from `where` now and then."""
        pairs = [name for name in self.above if self.relations[name] == "ii"]
        name, key = self.pick(*pairs), self.pick(*VARIABLES["i"])
        if any("a2" in literal for literal in self.literals) or "a2" in self.bound:
            return self.integer() + " >= 0"
        self.bound[key] = "i"
        where = self.pick("", f" where {key}: u({key})")
        if self.rarely():
            return f"a2 := sum[q9](q8: {name}({key}, q9), {name}(q9, q8){where}), a2 < 9"
        if self.draw(st.booleans()):
            return f"a2 := sum(q8: {name}({key}, q8){where}), a2 < 9"
        self.bound["a2"] = "i"
        return f"a2 := {self.pick('argmax', 'argmin')}[q9](q8: {name}(q9, q8), {name}(q8, {key}){where})"


class MonotoneRule(RichRule):
    """A rule without negation and aggregates: more facts give more tuples."""

    def negated(self) -> str:
        return self.compared()

    aggregated = totalled = negated


@st.composite
def closures(draw, source: Source) -> list[str]:
    """Rules that close relations of pairs, up to two: to equivalences and symmetric and transitive ones."""
    pairs = [name for name in source.derived if source.relations[name] == "ii"]
    forms = "{0}(x, y) = {0}(y, x)", "{0}(x, z) = {0}(x, y), {0}(y, z)", "{0}(y, z) = {0}(x, y), {0}(x, z)"
    names = draw(st.lists(st.sampled_from(pairs), max_size=2, unique=True)) if pairs else []
    chosen = [(name, draw(st.lists(st.sampled_from(forms), min_size=1, unique=True))) for name in names]
    return [f"rel {form.format(name)}" for name, some in chosen for form in some]


def inputs(max_rows: int = 6) -> st.SearchStrategy[dict[str, list[tuple]]]:
    """Facts of the input relations."""
    value = {"i": st.integers(0, 3), "t": st.sampled_from(TEXTS)}
    return st.fixed_dictionaries(
        {
            name: st.lists(st.tuples(*(value[kind] for kind in types)), max_size=max_rows, unique=True)
            for name, types in INPUTS.items()
        }
    )


@st.composite
def questions(draw, source: Source, demand: Mapping[str, str] | None = None) -> list[str]:
    """Up to three queries of derived relations, most of them with constants; they bind what is demanded."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        name = draw(st.sampled_from(source.derived))
        types = source.relations[name]
        marks = (demand or {}).get(name, "f" * len(types))
        arguments = [
            draw(constants(kind) if mark == "b" else st.one_of(constants(kind), st.sampled_from([f"v{i}", "_"])))
            for i, (kind, mark) in enumerate(zip(types, marks))
        ]
        found.append(name if draw(st.integers(0, 3)) == 0 else f"{name}({', '.join(arguments)})")
    return list(dict.fromkeys(found))
