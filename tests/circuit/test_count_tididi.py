"""Counts by tididi-cnf, against enumeration."""

import itertools
import json
import random
from dataclasses import replace

import numpy as np
import pytest

from derivable.circuit.compilation import count_tididi
from derivable.circuit.formulas.cnf import cnf_from_clauses
from derivable.circuit.formulas.dimacs import write_dimacs
from derivable.cli.main import USER_ERROR, main
from derivable.core.diagnostics import CompileTimeout, MissingDependencyError
from derivable.core.progress import Deadline


def drawn(rng):
    """A formula with variables that no clause mentions, maybe with weights, maybe with some variables shown."""
    count, more = rng.randint(1, 7), rng.randint(0, 2)
    clauses = [
        [rng.choice([-1, 1]) * rng.randint(1, count) for _ in range(rng.randint(1, 3))]
        for _ in range(rng.randint(0, 8))
    ]
    cnf = cnf_from_clauses(clauses + [[]] * (rng.random() < 0.05), count + more)
    if rng.random() < 0.5:
        kinds = [0.0, 0.5, 0.25, 0.3, 1.0, 2.0, -1.5]
        cnf = replace(cnf, weights=tuple(np.array(rng.choices(kinds, k=count + more)) for _ in range(2)))
    if rng.random() < 0.5:
        cnf = replace(cnf, shown=tuple(rng.sample(range(1, count + more + 1), rng.randint(1, count))))
    return cnf


def enumerated(cnf):
    worlds = np.array(list(itertools.product([False, True], repeat=cnf.num_variables)))
    shown = np.array(cnf.shown or range(1, cnf.num_variables + 1)) - 1
    models = np.unique(worlds[cnf.satisfied_by(worlds)][:, shown], axis=0)
    if cnf.weights is None:
        return len(models), None
    positive, negative = (weights[shown] for weights in cnf.weights)
    return len(models), np.where(models, positive, negative).prod(1).sum()


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(s, marks=pytest.mark.slow) for s in range(5, 100))])
def test_counts_are_those_of_enumeration(seed):
    pytest.importorskip("tididi_cnf")
    cnf = drawn(random.Random(seed))
    count, weighted = enumerated(cnf)
    counts = count_tididi.count_by_tididi(cnf)
    assert counts == (count, weighted if weighted is None else pytest.approx(weighted, rel=1e-12, abs=1e-12))


def test_the_command_line_counts_by_it(tmp_path, capsys):
    pytest.importorskip("tididi_cnf")
    path = tmp_path / "rules.cnf"
    path.write_text("p cnf 2000 2\n1 -2 0\n2 3 0\nc p weight 1 0.25 0\nc p weight -1 0.75 0\n")
    assert main(["count", str(path), "--compiler", "tididi", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert int(document["models"]) == 4 << 1997
    assert main(["count", str(path), "--compiler", "sdd", "--json"]) == 0
    other = json.loads(capsys.readouterr().out)
    assert document["weighted"] == pytest.approx(other["weighted"])
    assert document["models"] == other["models"]
    assert main(["count", str(path), "--format", "mcc"]) == 0
    assert "c s type wmc" in capsys.readouterr().out


def test_it_ends_in_time(tmp_path):
    pytest.importorskip("tididi_cnf")
    rng = random.Random(1)
    hard = [[rng.choice([-1, 1]) * v for v in rng.sample(range(1, 301), 3)] for _ in range(600)]
    with pytest.raises(CompileTimeout, match=r"tididi did not finish within 0\.5 s, on \d+ variables and 600 clauses"):
        count_tididi.count_by_tididi(cnf_from_clauses(hard), Deadline(0.5, "counting", "raise time_limit"))


def test_without_it_there_are_the_compilers(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(count_tididi, "has_tididi", lambda: False)
    path = tmp_path / "rules.cnf"
    write_dimacs(cnf_from_clauses([[1, -2], [2, 3]]), path)
    assert main(["count", str(path)]) == 0
    assert "circuit: " in capsys.readouterr().out
    assert main(["count", str(path), "--compiler", "tididi"]) == USER_ERROR
    assert "tididi-cnf is not installed" in capsys.readouterr().err
    with pytest.raises(MissingDependencyError):
        count_tididi.count_by_tididi(cnf_from_clauses([[1]]))
