"""Projected counts against all assignments, weighted ones too, and the command's lines."""

import itertools
import random

import numpy as np
import pytest

import derivable as dv
from derivable.circuit.compilation.projection import compile_projection
from derivable.circuit.formulas.dimacs import format_dimacs, parse_dimacs
from derivable.cli.main import main


def drawn(seed: int) -> tuple[str, int, float, int]:
    """(a CNF that shows some variables, how many of their assignments extend to a model, their weight, hidden)"""
    chosen = random.Random(seed)
    n = chosen.randint(2, 9)
    clauses = [
        [chosen.choice((1, -1)) * v for v in chosen.sample(range(1, n + 1), chosen.randint(1, min(3, n)))]
        for _ in range(chosen.randint(1, 2 * n))
    ]
    shown = sorted(chosen.sample(range(1, n + 1), chosen.randint(1, n)))
    weights = {v: chosen.choice((0.1, 0.3, 0.5, 0.75)) for v in shown}
    models = [
        values
        for values in itertools.product((False, True), repeat=n)
        if all(any(values[abs(literal) - 1] == (literal > 0) for literal in clause) for clause in clauses)
    ]
    rows = {tuple(values[v - 1] for v in shown) for values in models}
    weight = sum(
        float(np.prod([weights[v] if value else 1 - weights[v] for v, value in zip(shown, row)])) for row in rows
    )
    lines = [f"p cnf {n} {len(clauses)}", f"c p show {' '.join(map(str, shown))} 0"]
    lines += [f"c p weight {v} {p} 0" for v, p in weights.items()]
    lines += [" ".join(map(str, [*clause, 0])) for clause in clauses]
    return "\n".join(lines) + "\n", len(rows), weight, n - len(shown)


@pytest.mark.parametrize("seed", range(30))
def test_projected_counts_are_those_of_all_assignments(seed):
    text, count, weight, hidden = drawn(seed)
    cnf = parse_dimacs(text, projected=True)
    if cnf.shown is None:
        return
    circuit = compile_projection(cnf)
    assert circuit.model_count() == count << hidden
    assert float(np.ravel(circuit.weighted_count(*circuit.weights))[0]) == pytest.approx(weight, abs=1e-12)


def test_the_command_counts_over_what_is_shown(tmp_path, capsys):
    text = "c t pmc\np cnf 3 2\nc p show 1 2 0\n1 3 0\n2 -3 0\n"
    (tmp_path / "p.cnf").write_text(text)
    assert main(["count", str(tmp_path / "p.cnf"), "--format", "mcc"]) == 0
    # 01, 10 and 11 extend to a model.
    expected = f"s SATISFIABLE\nc s type pmc\nc s log10-estimate {np.log10(3):.12g}\nc s exact arb int 3\n"
    assert capsys.readouterr().out == expected
    (tmp_path / "w.cnf").write_text(text + "c p weight 1 0.25 0\nc p weight 2 0.5 0\n")
    assert main(["count", str(tmp_path / "w.cnf"), "--format", "mcc"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "c s type pwmc"
    assert float(lines[3].split()[-1]) == pytest.approx(1 - 0.75 * 0.5)
    (tmp_path / "u.cnf").write_text("p cnf 1 2\n1 0\n-1 0\n")
    assert main(["count", str(tmp_path / "u.cnf"), "--format", "mcc"]) == 0
    expected = "s UNSATISFIABLE\nc s type mc\nc s log10-estimate -inf\nc s exact arb int 0\n"
    assert capsys.readouterr().out == expected


def test_a_formula_that_shows_all_is_no_projection():
    cnf = parse_dimacs("p cnf 1 1\nc p show 1 0\n1 0\n", projected=True)
    assert cnf.shown is None
    with pytest.raises(dv.DerivableError, match="does not say which variables are shown"):
        compile_projection(cnf)


def test_others_refuse_a_projection():
    cnf = parse_dimacs("p cnf 2 1\nc p show 1 0\n1 2 0\n", projected=True)
    with pytest.raises(dv.DerivableError, match="only variables 1 are shown"):
        dv.circuit.compile(cnf)
    written = format_dimacs(cnf)
    assert parse_dimacs(written, projected=True).shown == (1,)
