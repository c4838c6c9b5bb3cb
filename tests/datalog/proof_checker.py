"""A checker of proofs that knows nothing of how they are found: rules are read again from the text that a node shows.

A node is right if its rule's head has its values under its bindings, and its body holds, where atoms that are not
negated are the node's own premises, and what is negated or aggregated is as in a model of the program.
"""

from __future__ import annotations

from itertools import count

from derivable.datalog.ram.interpret import _made_of, _NoValueError, evaluate
from derivable.datalog.ram.lower import lower
from derivable.datalog.ram.nodes import Difference
from derivable.datalog.rules.new_terms import with_terms
from derivable.datalog.rules.strata import stratify
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.parse import parse


class Unbound(Exception):
    """A variable has no value yet."""


def value(node, env):
    match node:
        case s.Constant(value=v):
            return v
        case s.Variable(name=name):
            if name not in env:
                raise Unbound(name)
            return env[name]
        case s.Unary(operator="-", operand=a):
            return -value(a, env)
        case s.Unary(operator="!", operand=a):
            return not value(a, env)
        case s.Conditional(condition=c, then=a, otherwise=b):
            return value(a if value(c, env) else b, env)
        case s.Call(name="max", arguments=(a, b)):
            return max(value(a, env), value(b, env))
        case s.Call(name="abs", arguments=(a,)):
            return abs(value(a, env))
        case s.Binary(operator=operator, left=a, right=b):
            x, y = value(a, env), value(b, env)
            match operator:
                case "/" | "%":
                    if not y:
                        raise ZeroDivisionError
                    quotient = int(x / y)
                    return quotient if operator == "/" else x - quotient * y
            return {
                "+": lambda: x + y,
                "-": lambda: x - y,
                "*": lambda: x * y,
                "==": lambda: x == y,
                "!=": lambda: x != y,
                "<": lambda: x < y,
                "<=": lambda: x <= y,
                ">": lambda: x > y,
                ">=": lambda: x >= y,
            }[operator]()
    raise NotImplementedError(repr(node))


class Solver:
    """Solutions of formulas over premises and a model, both relation -> set of rows."""

    def __init__(self, premises, model):
        self.premises, self.model = premises, model

    def matches(self, arguments, row, env):
        found, later = dict(env), []
        for argument, v in zip(arguments, row):
            if isinstance(argument, s.Wildcard):
                continue
            if isinstance(argument, s.Variable):
                if found.setdefault(argument.name, v) != v:
                    return None
            else:
                later.append((argument, v))
        return found if all(value(argument, found) == v for argument, v in later) else None

    def solutions(self, node, env):
        match node:
            case s.Atom(relation="range", arguments=(low, high, variable)):
                yield from self.ranged(variable, value(low, env), value(high, env), env)
            case s.InRange(variable=variable, low=low, high=high, inclusive=inclusive):
                yield from self.ranged(variable, value(low, env), value(high, env) + inclusive, env)
            case s.Atom(relation=name, arguments=arguments):
                for row in self.premises.get(name, ()):
                    if (found := self.matches(arguments, row, env)) is not None:
                        yield found
            case s.Conjunction(operands=parts):
                yield from self.conjunction(list(parts), env)
            case s.Disjunction(operands=parts):
                for part in parts:
                    yield from self.solutions(part, env)
            case s.Not(operand=a):
                if not any(True for _ in Solver(self.model, self.model).solutions(a, env)):
                    yield env
            case s.Aggregate():
                yield from self.aggregate(node, env)
            case s.Binary(operator="==", left=a, right=b):
                for one, other in ((a, b), (b, a)):
                    if isinstance(one, s.Variable) and one.name not in env:
                        yield {**env, one.name: value(other, env)}
                        return
                if value(a, env) == value(b, env):
                    yield env
            case _:
                if value(node, env):
                    yield env

    def ranged(self, variable, low, high, env):
        if isinstance(variable, s.Variable) and variable.name not in env:
            yield from ({**env, variable.name: v} for v in range(low, high))
        elif low <= value(variable, env) < high:
            yield env

    def conjunction(self, parts, env):
        if not parts:
            yield env
            return
        # Negations and aggregates come when all that they share with others has a value.
        parts.sort(key=lambda part: isinstance(part, (s.Not, s.Aggregate)))
        for place, part in enumerate(parts):
            try:
                found = list(self.solutions(part, env))
            except Unbound:
                continue
            except ZeroDivisionError:
                return
            for one in found:
                yield from self.conjunction(parts[:place] + parts[place + 1 :], one)
            return
        raise Unbound

    def aggregate(self, node, env):
        local = {*node.bindings, *node.arguments}
        outside = {name: v for name, v in env.items() if name not in local}
        whole = Solver(self.model, self.model)
        if node.operator == "exists":
            inside = Solver(self.premises, self.model) if node.outputs is None else whole
            if any(True for _ in inside.solutions(node.body, outside)):
                yield env
            return
        if node.operator == "forall":
            rows = whole.solutions(node.body.condition, outside)
            if all(any(True for _ in whole.solutions(node.body.conclusion, row)) for row in rows):
                yield env
            return
        if node.group_body is not None and not any(True for _ in whole.solutions(node.group_body, outside)):
            return
        names = [*node.arguments, *node.bindings]
        rows = {tuple(row[name] for name in names) for row in whole.solutions(node.body, outside)}
        for result in results(node.operator, rows, len(node.arguments)):
            found = self.matches(node.outputs, result, env)
            if found is not None:
                yield found


def results(operator, rows, num_arguments):
    last = [row[-1] for row in rows]
    match operator:
        case "count":
            return [(len(rows),)]
        case "sum":
            return [(sum(last),)]
        case "min" | "max":
            return [(min(last) if operator == "min" else max(last),)] if rows else []
        case "argmin" | "argmax":
            best = (min(last) if operator == "argmin" else max(last)) if rows else None
            return [row[:num_arguments] for row in rows if row[-1] == best]
    raise NotImplementedError(operator)


def tuples_of(premises):
    """Relation -> the rows that are proved by premises, those of rows of aggregates too."""
    found = {}
    for premise in premises:
        if premise.kind in ("rule", "fact"):
            found.setdefault(premise.relation, set()).add(premise.row)
    return found


def check(proof, facts, model):
    """Raise AssertionError unless a proof is one.

    facts  relation -> rows that are given, those of the program too
    """
    seen = {}
    for node in proof.nodes():
        if node.kind in ("rule", "fact"):
            # One node for each tuple, above those that it needs: no tuple is behind itself.
            assert seen.setdefault((node.relation, node.row), node) is node
        if node.kind == "fact":
            assert node.row in set(facts.get(node.relation, ())), node.text
            assert not node.premises
        if node.kind == "rule":
            check_rule(node, model)
        if node.kind == "absent" and node.relation is not None:
            assert node.row not in model[node.relation]
    place = {id(node): number for number, node in enumerate(proof.nodes())}
    assert all(place[id(node)] < place[id(premise)] for node in proof.nodes() for premise in node.premises)


def check_rule(node, model):
    (item,) = parse(f"rel {node.rule}").items
    heads = [head for head in item.heads if head.relation == node.relation]
    assert any(
        tuple(value(a, solution) for a in head.arguments) == node.row
        for head in heads
        for solution in Solver(tuples_of(node.premises), model).conjunction([item.body], dict(node.bindings))
    ), str(node)


def heights(program, facts, model):
    """Relation -> row -> the least height of its proofs, by rounds of all rules over all rows."""
    ram = lower(stratify(with_terms(program.desugared())))
    aggregates = {i.relation for stratum in ram.strata for i in stratum.full if not hasattr(i, "query")}
    found = {name: {} for name in ram.relations}
    for name in ram.relations:
        if name in aggregates:
            found[name] = dict.fromkeys(model[name], 0)
    for given in ram.facts:
        found[given.relation].update(dict.fromkeys(given.rows, 0))
    for name, rows in facts.items():
        found[name].update(dict.fromkeys(rows, 0))
    instructions = [i for stratum in ram.strata for i in stratum.full if hasattr(i, "query")]
    parts = [i for i in instructions if i.relation.startswith("#")]
    rules = [i for i in instructions if not i.relation.startswith("#")]
    for number in count(1):
        # Parts of rules add nothing to the height.
        is_new = True
        while is_new:
            is_new = sum(_round(i, found, model, ram, number - 1) for i in parts) > 0
        before = {name: set(rows) for name, rows in found.items()}
        new = [_round(i, {n: dict.fromkeys(r, 0) for n, r in before.items()}, model, ram, number, found) for i in rules]
        if not any(new):
            break
    return found


def _round(instruction, current, model, ram, number, target=None):
    """Add the rows of a rule over the rows there are; whether there are new ones."""
    target = current if target is None else target
    rows = [{}]
    for node in instruction.query.operators:
        over = model if isinstance(node, Difference) else current
        rows = [made for row in rows for made in _made_of(node, row, over, ram)]
    is_new = False
    for row in rows:
        try:
            made = tuple(evaluate(t, row) for t in instruction.query.terms)
        except _NoValueError:
            continue
        if made not in target[instruction.relation]:
            target[instruction.relation][made] = number
            is_new = True
    return is_new
