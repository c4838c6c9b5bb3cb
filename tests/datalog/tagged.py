"""Programs with rules that have probabilities, and what they mean world by world.

A rule is (head, arguments, disjuncts, tag); a disjunct is a body as in `naive`, whose variables may be wildcards, which
begin with `_`. The tag is None, a probability, or a variable, which stands for a quarter of its value. Each disjunct
throws a coin of its own for each binding of all its variables. Nothing of the library is used here.
"""

import itertools

from hypothesis import assume
from hypothesis import strategies as st

from datalog.naive import EDB, programs, solutions

MOST_WORLDS = 600


def text_of(rules, extra=()):
    """The program in the surface language."""
    rows = ["type e(i32, i32), u(i32)"]
    for head, arguments, disjuncts, tag in rules:
        bodies = []
        for body in disjuncts:
            literals = []
            for kind, *rest in body:
                if kind in "+-":
                    shown = ("_" if str(a).startswith("_") else str(a) for a in rest[1])
                    literals.append(("not " if kind == "-" else "") + f"{rest[0]}({', '.join(shown)})")
                else:
                    literals.append(f"{rest[0]} {kind} {rest[1]}")
            bodies.append(" and ".join(literals))
        body = bodies[0] if len(bodies) == 1 else " or ".join(f"({body})" for body in bodies)
        shown = "" if tag is None else f"(0.25 * ({tag} as f64))::" if isinstance(tag, str) else f"{tag}::"
        rows.append(f"rel {shown}{head}({', '.join(map(str, arguments))}) = {body}")
    return "\n".join([*rows, *extra])


class Unknown(Exception):
    """A coin that was not thrown yet."""

    def __init__(self, coin, chance):
        super().__init__(coin)
        self.coin, self.chance = coin, chance


def ways(evaluate):
    """(probability, result) of each way in which the coins fall that an evaluation looks at.

    evaluate  of a function throw(coin, chance) -> whether it shows heads
    """
    waiting, number = [({}, 1.0)], 0
    while waiting:
        known, probability = waiting.pop()

        def throw(coin, chance, known=known):
            if coin not in known:
                raise Unknown(coin, chance)
            return known[coin]

        try:
            yield probability, evaluate(throw)
            number += 1
            assume(number <= MOST_WORLDS)
        except Unknown as unknown:
            p = unknown.chance
            for side, part in ((True, p), (False, 1.0 - p)):
                if part > 0.0:
                    waiting.append(({**known, unknown.coin: side}, probability * part))


def chance_of(tag, binding):
    return 1.0 if tag is None else 0.25 * binding[tag] if isinstance(tag, str) else tag


def model(rules, facts, order, throw):
    """Relation -> set of tuples of one world, one relation of `order` after the other."""
    found = {name: set(facts.get(name, ())) for name in [*EDB, *order]}
    for name in order:
        changed = True
        while changed:
            changed = False
            for number, (head, arguments, disjuncts, tag) in enumerate(rules):
                if head != name:
                    continue
                for place, body in enumerate(disjuncts):
                    for binding in solutions(body, found):
                        row = tuple(binding.get(a, a) for a in arguments)
                        coin = number, place, tuple(sorted(binding.items()))
                        chance = chance_of(tag, binding)
                        if row not in found[name] and (chance == 1.0 or throw(coin, chance)):
                            found[name].add(row)
                            changed = True
    return found


def probabilities(rules, order, fact_worlds, more=lambda found: {}):
    """(relation, tuple) -> probability, over (probability, facts) of the facts and over the coins.

    more  of a model: relations that follow from it
    """
    found = {}
    for chance, facts in fact_worlds:
        for probability, world in ways(lambda throw, facts=facts: model(rules, facts, order, throw)):
            for relation, rows in (world | more(world)).items():
                for row in rows:
                    found[relation, row] = found.get((relation, row), 0.0) + chance * probability
    return found


def godel(rules, order, tags):
    """(relation, tuple) -> the best of its derivations, each as good as the worst of what it uses.

    tags  (relation, tuple) of facts -> tag
    """
    value = dict(tags)
    for name in order:
        changed = True
        while changed:
            changed = False
            known = {relation: set() for relation in [*EDB, *order]}
            for (relation, row), tag in value.items():
                if tag > 0.0:
                    known[relation].add(row)
            for head, arguments, disjuncts, tag in rules:
                if head != name:
                    continue
                for body in disjuncts:
                    positive = [literal for literal in body if literal[0] != "-"]
                    for binding in solutions(positive, known):
                        worst = chance_of(tag, binding)
                        if any(
                            isinstance(a, str) and a not in binding for lit in body if lit[0] == "-" for a in lit[2]
                        ):
                            raise AssertionError("a variable under `not` alone")
                        for kind, *rest in body:
                            if kind in "+-":
                                row = rest[0], tuple(binding.get(a, a) for a in rest[1])
                                part = value.get(row, 0.0)
                                worst = min(worst, part if kind == "+" else 1.0 - part)
                        row = name, tuple(binding.get(a, a) for a in arguments)
                        if worst > value.get(row, 0.0):
                            value[row], changed = worst, True
    return value


@st.composite
def tagged_programs(draw, max_rules=2):
    """(rules, order): programs of `naive` in which most rules have tags, some wildcards, and some disjuncts."""
    rules, order = draw(programs(max_rules=max_rules))
    # The first relation has rows in most worlds, whose instances differ in what the head has not.
    width = next(len(arguments) for head, arguments, _ in rules if head == "p0")
    two_edges = (("+", "e", ("x", "_0")), ("+", "e", ("_1", "y")))
    made = [("p0", ("x", "y")[:width], (two_edges[:width],), draw(st.sampled_from([0.3, 0.5, "x"])))]
    for head, arguments, body in rules:
        uses = [a for kind, *rest in body for a in (rest[1] if kind in "+-" else rest)]
        uses += arguments
        fresh = itertools.count()
        positive = []
        for kind, *rest in body:
            if kind == "+":
                terms = tuple(f"_{next(fresh)}" if isinstance(a, str) and uses.count(a) == 1 else a for a in rest[1])
                positive.append((kind, rest[0], terms))
            else:
                positive.append((kind, *rest))
        bodies = [tuple(positive)]
        known = [a for a in arguments if isinstance(a, str)]
        if len(known) <= 2 and draw(st.integers(0, 3)) == 0:
            # Another disjunct that binds what the head has.
            bodies.append((("+", "e", (known[0] if known else "_9", known[-1] if known else 1)),))
        options = [None, 0.3, 0.5, 0.8]
        if known and len(bodies) == 1:
            options.append(known[0])
        made.append((head, arguments, tuple(bodies), draw(st.sampled_from(options))))
    return made, order
