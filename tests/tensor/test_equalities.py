"""Every equality holds: whatever is in one class has one value, for all values of the names that are free in it."""

import os
import random
import subprocess
import sys
from functools import cache

import egglog
import pytest

from derivable.algebra import semirings
from derivable.tensor import optimise, parse
from derivable.tensor.analysis.loop_cost import Costs
from derivable.tensor.analysis.sparsity import propagate
from derivable.tensor.language import nodes as t
from derivable.tensor.language.interpret import NOTHING, interpret
from derivable.tensor.language.types import INT, tensor
from derivable.tensor.optimisation import saturate
from derivable.tensor.optimisation.terms import Terms, free_in
from tensor.random_programs import INPUTS, SIZE, SMOOTH, _Programs, _tensor, is_same

# Forms that random programs have seldom.
TEXTS = (
    "A * X * Y + (A * X) * Y",
    "(sum(<i, r> in A) { i -> X * r }) + (sum(<i, r> in A) { i -> r * Y })",
    "(sum(<i, r> in A) { i -> s * r }) + (sum(<i, r> in A) { i -> r + X })",
    "(sum(<i, x> in X) x * Y(i)) + (sum(<i, y> in Y) y * X(i) * s)",
    "sum(<i, x> in X) if 1 < i then if 0 < n then { i -> x * s }",
    "sum(<i, x> in X) sum(<j, y> in Y) (if n < 2 then x) * (y + s)",
    "sum(<_, i> in (0:2)) sum(<j, v> in sum(<k, x> in X) { k -> x * s }) { j -> v * (X(i) + Y(j)) }",
    "sum(<k, v> in sum(<i, x> in X) { i -> x * s }) sum(<_, i> in (0:n)) v * Y(i)",
    "let x = X + Y in sum(<i, a> in x) sum(<j, r> in A) { i -> a * r(i) }",
    "let x = X + Y in if n < 2 then let y = x * s in sum(<i, a> in A) a * y(i)",
    "sum(<i, r> in A) { i -> r } + s * A",
    "sum(<i, x> in X) if n < 2 then if n < 2 then x",
    "s * (sum(<k, v> in sum(<i, x> in X) { i -> x + s }) v * Y(k)) * s",
    "X * (sum(<k, v> in X + Y) { k -> v * s })",
    "(sum(<k, v> in X + Y) { k -> v * s }) * X",
    "let x = X + Y in s",
    "let x = X + Y in x(0) + x(1)",
    "let x = X + Y in { n -> s * x }",
    "let x = X + Y in x * A",
    "(s + 1.0) * (s * (X + Y)) + (if n == 1 then one) * X + one * Y",
)


def _types(term, names, found):
    """The order of a term; the types of the names that it binds are put into `found`."""
    operation, *parts = term

    def order(part, more=()):
        return _types(part, {**names, **dict(more)}, found)

    match operation:
        case "var":
            of = names[parts[0]]
            return of.order
        case "look":
            order(parts[1])
            return order(parts[0]) - 1
        case "singleton" | "row":
            order(parts[0])
            return order(parts[1]) + 1
        case "over":
            order(parts[1])
            found[parts[0]] = INT
            return order(parts[2], [(parts[0], INT)])
        case "run":
            over = order(parts[2])
            is_range = parts[2][0] == "between"
            more = {parts[0]: INT, parts[1]: INT if is_range else tensor(over - 1)}
            found |= more
            return order(parts[3], more.items())
        case "let":
            found[parts[0]] = tensor(order(parts[1]))
            return order(parts[2], [(parts[0], found[parts[0]])])
        case "number" | "zero" | "one":
            return 0
        case "when":
            order(parts[0])
            return order(parts[1])
        case "add":
            return max(order(part) for part in parts)
        case "times" | "scale" | "outer":
            return sum(order(part) for part in parts)
    for part in parts:
        if not isinstance(part, str):
            order(part)
    return 0


@cache
def _programs_of(functions, number):
    found = [parse(text, INPUTS).node for text in TEXTS]
    for seed in range(number):
        source = random.Random(seed)
        node = propagate(_Programs(source, functions, False).expression(source.choice([0, 1, 2]), dict(INPUTS), 4))
        found += [node] if node != t.Zero() else []
    return found


def _without_zeros(value, zero):
    if isinstance(value, dict):
        rows = {key: _without_zeros(row, zero) for key, row in value.items()}
        return {key: row for key, row in rows.items() if row not in (NOTHING, {})} or NOTHING
    return NOTHING if value is not NOTHING and value == zero else value


def _value(source, of, record):
    found = source.randrange(SIZE) if of == INT else _tensor(source, of.order, SIZE)
    return _truth(found) if record.name == "boolean" and of != INT else found


def _truth(value):
    return {key: _truth(row) for key, row in value.items()} if isinstance(value, dict) else value > 0


@pytest.mark.parametrize(
    ("semiring", "functions", "number"), [("real", SMOOTH, 24), ("min_plus", (), 4), ("boolean", (), 4)]
)
def test_what_is_in_one_class_has_one_value(semiring, functions, number, monkeypatch):
    met, plain = {}, egglog.EGraph.run

    def run(self, *args, **options):
        report = plain(self, *args, **options)
        for iteration in report.iterations:
            for rule, reports in iteration.rule_set_report.rule_reports.items():
                met[rule] = met.get(rule, 0) + sum(found.num_matches for found in reports)
        return report

    monkeypatch.setattr(egglog.EGraph, "run", run)
    monkeypatch.setattr(saturate, "_MOST_ROWS", 400)
    record, source, compared = semirings.get(semiring), random.Random(0), 0
    for node in _programs_of(functions, number):
        literals = [part.value for part in t.walk(node) if isinstance(part, t.Number)]
        if semiring == "boolean" and any(isinstance(value, float) for value in literals):
            continue
        terms = Terms(INPUTS, Costs({}, {}))
        whole = terms.term(node)
        types = dict(INPUTS)
        _types(whole, INPUTS, types)
        rows, class_of = saturate.equal_terms((whole,))
        chosen = {}
        # Of each class the first term that is found, from small to large.
        while True:
            ready = [
                row for row in rows if row[0] not in chosen and all(isinstance(p, str) or p in chosen for p in row[2])
            ]
            if not ready:
                break
            for of, operation, parts in ready:
                term = (operation, *(part if isinstance(part, str) else chosen[part] for part in parts))
                chosen.setdefault(of, term)
        assert class_of(whole) in chosen
        values = {name: _value(source, of, record) for name, of in types.items()}
        names = {name: t.Var(name) for name in values}
        known = {}
        for of, operation, parts in rows:
            term = (operation, *(part if isinstance(part, str) else chosen[part] for part in parts))
            assert free_in(term) <= set(names)
            found = _without_zeros(interpret(terms.node(term), values, record), record.zero)
            expected = known.setdefault(of, found)
            is_equal = expected == found or is_same(expected, found, tolerance=1e-6)
            assert is_equal, f"{terms.node(chosen[of])}\n{terms.node(term)}\n{values}"
            compared += of in known
    assert compared > 1000
    # Of an equality that no program meets the test would say nothing.
    if semiring == "real":
        assert len(met) > 160
        assert not [rule for rule, matches in met.items() if not matches]


PROGRAMS = (
    "sum(<i, r> in A) sum(<j, a> in r) sum(<k, b> in r) { j -> s * a * b * X(k) }",
    "sum(<i, r> in A) sum(<j, a> in r) { j -> exp(a * X(j)) * (X(j) + Y(j)) * s } + s * X + s * Y",
    " + ".join(f"(sum(<i, x> in X) x * Y(i) * s + sum(<_, r> in A) r({k}))" for k in range(3)),
)


def test_what_is_found_is_the_same_in_every_process():
    code = (
        "import sys; from derivable.tensor import optimise, parse\n"
        "for text in sys.argv[1:]: print(optimise(parse(text, {'s': 0, 'X': 1, 'Y': 1, 'A': 2})))"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, *PROGRAMS],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    here = [optimise(parse(text, {"s": 0, "X": 1, "Y": 1, "A": 2})) for text in PROGRAMS]
    assert found == "".join(f"{program}\n" for program in here)


def test_factors_take_no_names_out_of_their_loops():
    # Of a class the cheapest term may depend on a loop's name where others do not.
    rows = [
        ("x", "var", ["i"]),
        ("y", "var", ["s"]),
        ("x", "look", ["y", "y"]),
        ("whole", "times", ["x", "y"]),
    ]
    assert [row[1:] for row in saturate._in_scope(rows)] == [row[1:] for row in rows[1:]]
