"""Formulas that are made smaller before they are counted, against enumeration."""

import json
import random

import numpy as np
import pytest

from circuit.test_count_tididi import drawn, enumerated
from derivable.circuit.compilation import reduction
from derivable.circuit.compilation.compilation import compile
from derivable.circuit.formulas.cnf import Cnf, cnf_from_clauses
from derivable.circuit.formulas.dimacs import write_dimacs
from derivable.cli.main import main
from derivable.core.diagnostics import CompileTimeout
from derivable.core.progress import Deadline


@pytest.mark.parametrize("seed", [0, *(pytest.param(s, marks=pytest.mark.slow) for s in range(1, 60))])
def test_counts_are_those_of_enumeration(seed):
    pytest.importorskip("vitri")
    cnf = drawn(random.Random(seed))
    plain = Cnf(cnf.num_variables, cnf.offsets, cnf.literals)
    if (np.diff(plain.offsets) == 0).any():
        pytest.skip("a clause is false")
    rest, lift = reduction.reduced(plain)
    assert compile(rest).model_count() << lift == enumerated(plain)[0]


def test_the_command_line_counts_what_is_left(tmp_path, capsys):
    pytest.importorskip("vitri")
    path = tmp_path / "rules.cnf"
    path.write_text("p cnf 2000 3\n1 -2 0\n2 3 0\n-3 4 0\n")
    assert main(["count", str(path), "--compiler", "sdd", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    # By hand: 1 or not 2, 2 or 3, not 3 or 4.
    four = sum(
        (a or not b) and (b or c) and (not c or d) for a in (0, 1) for b in (0, 1) for c in (0, 1) for d in (0, 1)
    )
    assert int(document["models"]) == four << 1996
    assert document["variables"] == 2000


def test_it_stops_at_its_limit():
    pytest.importorskip("vitri")
    rng = random.Random(0)
    hard = [[rng.choice([-1, 1]) * v for v in rng.sample(range(1, 4001), 3)] for _ in range(16_000)]
    with pytest.raises(CompileTimeout, match="vitri did not finish within"):
        reduction.reduced(cnf_from_clauses(hard), Deadline(0.01, "counting", "raise time_limit"))


def test_counting_goes_on_without_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(reduction, "has_vitri", lambda: False)
    path = tmp_path / "rules.cnf"
    write_dimacs(cnf_from_clauses([[1, 2]]), path)
    assert main(["count", str(path), "--compiler", "sdd", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["models"] == "3"
