"""Bad input to any public name is an error of ours, with a message; never a crash, never a foreign exception.

Golden tests beside each engine fix the words; this one goes over all names with the same list of abuses.
"""

import numpy as np
import pytest

import derivable as dv
from derivable.circuit.graph.builder import CircuitBuilder
from robust.refusal import refuses

CLAUSES = [[1, -2], [2, 3], [-1, -3]]

BAD_WEIGHTS = {
    "too short": np.full(2, 0.5),
    "too long": np.full(4, 0.5),
    "a scalar": np.float64(0.5),
    "not a number": np.array([0.5, np.nan, 0.5]),
    "text": "half",
    "a list of text": ["a", "b", "c"],
    "ragged": [[0.5, 0.5, 0.5], [0.5]],
    "complex": np.full(3, 0.5 + 1j),
    "objects": np.array([object()] * 3),
    "none": None,
}


@pytest.fixture(scope="module")
def circuit():
    return dv.circuit.compile(CLAUSES)


@pytest.mark.parametrize("abuse", BAD_WEIGHTS)
@pytest.mark.parametrize(
    "query", ["evaluate", "probability", "marginals", "weighted_count", "most_probable", "sample", "entropy", "k_most"]
)
def test_weights(circuit, query, abuse):
    if abuse == "none" and query != "evaluate":
        pytest.skip("the weights of the file, else those of the models")
    weights = BAD_WEIGHTS[abuse]
    calls = {
        "sample": lambda: circuit.sample(3, weights, seed=0),
        "k_most": lambda: circuit.k_most_probable(2, weights),
    }
    refuses(calls.get(query, lambda: getattr(circuit, query)(weights)))


@pytest.mark.parametrize("abuse", BAD_WEIGHTS)
def test_negative_weights(circuit, abuse):
    if abuse in ("none", "a scalar"):
        pytest.skip("legitimate")
    refuses(circuit.evaluate, np.full(3, 0.5), BAD_WEIGHTS[abuse])
    refuses(circuit.weighted_count, np.full(3, 0.5), BAD_WEIGHTS[abuse])


@pytest.mark.parametrize("semiring", ["reall", "", None, 3, object()])
def test_semirings(circuit, semiring):
    refuses(circuit.evaluate, np.full(3, 0.5), semiring=semiring)
    refuses(circuit.to_torch, semiring=semiring)


def test_probabilities_out_of_range(circuit):
    refuses(circuit.probability, np.array([0.5, 1.5, 0.5]))
    refuses(circuit.probability, np.array([0.5, -0.1, 0.5]))


def test_torch_modules(circuit):
    import torch

    module = circuit.to_torch(semiring="real")
    refuses(module, torch.full((2, 4), 0.5))
    refuses(module, torch.tensor(0.5))
    refuses(module, "half")
    refuses(module, torch.full((2, 3), 0.5), torch.full((2, 2), 0.5))
    refuses(module, torch.ones(2, 3, dtype=torch.int64))


@pytest.mark.parametrize("evidence", [{4: True}, {0: True}, [4], [0], ["a"], {1: "yes"}, [1, -1], 1, None, "12"])
def test_evidence(circuit, evidence):
    refuses(circuit.condition, evidence)


@pytest.mark.parametrize("query", ["probability", "weighted_count", "evaluate", "value_and_gradient", "marginals"])
def test_names(query):
    rain, wet = dv.circuit.variables("rain wet")
    named = dv.circuit.compile(dv.circuit.implies(rain, wet))
    (other,) = dv.circuit.variables("other")
    assert "did you mean 'rain'" in refuses(named.condition, {"rains": True})
    refuses(named.condition, {other: True})
    refuses(named.condition, [rain & wet])
    refuses(named.condition, {"rain": True, 1: False})
    refuses(dv.circuit.compile(CLAUSES).condition, {"rain": True})
    ask = getattr(named, query)
    assert "'wet'" in refuses(ask, {"rain": 0.5})
    refuses(ask, {"rain": 0.5, "wet": 0.5, 1: 0.25})
    refuses(ask, {"rain": 0.5, "wet": 0.5, "sun": 0.25})
    refuses(ask, {"rain": "half", "wet": 0.5})
    refuses(ask, {"rain": [0.5, 0.5], "wet": [0.5, 0.5, 0.5]})
    refuses(ask, {})


@pytest.mark.parametrize("variables", [[4], [0], [-1], ["a"], None, 1.5])
def test_forgetting(circuit, variables):
    refuses(circuit.forget, variables)


@pytest.mark.parametrize("number", [-1, 1.5, "2", None, True, 10**30])
def test_numbers_of_samples_and_models(circuit, number):
    refuses(circuit.sample, number, np.full(3, 0.5))
    if number != 10**30:  # more than there are: all of them
        refuses(circuit.k_most_probable, number, np.full(3, 0.5))


@pytest.mark.parametrize("clauses", [[[0]], [["a"]], [[1.5]], [[2**31]], [1, 2], None, 3, [[1, None]], {"a": 1}])
def test_clauses(clauses):
    refuses(dv.circuit.compile, clauses)


@pytest.mark.parametrize(
    "options",
    [
        {"compiler": "sd"},
        {"compiler": None},
        {"time_limit": 0},
        {"time_limit": -1},
        {"time_limit": "1"},
        {"num_variables": 2},
        {"num_variables": -1},
        {"num_variables": 1.5},
        {"weights": np.ones(3)},
    ],
    ids=str,
)
def test_compile_options(options):
    refuses(dv.circuit.compile, CLAUSES, **options)


@pytest.mark.parametrize("name", ["missing.sdd", "", "."])
@pytest.mark.parametrize("call", [dv.circuit.load, dv.circuit.compile], ids=["load", "compile"])
def test_paths(call, name, tmp_path):
    refuses(call, str(tmp_path / name) if name else "")


@pytest.mark.parametrize("suffix", [".sdd", ".nnf", ".cnf", ".dvc", ".txt", ""])
@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 100, b"\x1f\x8b\x08rest", b"p cnf", b"sdd 3", b"\xff\xfe\xfd", b"1 2 3"]
)
def test_files(suffix, content, tmp_path):
    path = tmp_path / f"file{suffix}"
    path.write_bytes(content)
    assert str(path) in refuses(dv.circuit.load, path)


def test_builder():
    builder = CircuitBuilder()
    a = builder.literal(1)
    refuses(builder.literal, 0)
    refuses(builder.conjunction, [a, 99])
    refuses(builder.conjunction, [a, -1])
    refuses(builder.build, [99])
    refuses(builder.build, [a], num_variables=0)
    refuses(builder.build, [a], weights=(np.ones(3), np.ones(3)))


def test_formulas():
    a, _ = dv.circuit.variables("a b")
    refuses(lambda: a & "b")
    refuses(lambda: a | 3)
    refuses(dv.circuit.variables, "a a")
    refuses(dv.circuit.variables, "")
    refuses(dv.circuit.implies, a, None)
    refuses(dv.circuit.exactly_one, a, "b")


@pytest.mark.parametrize("roots", ["x", None, 1.5, [1.5], [[1], [2, 3]], [True], [99], [-1]])
def test_roots(roots):
    builder = CircuitBuilder()
    refuses(builder.build, roots)
    assert builder.build([]).num_roots == 0
    refuses(builder.build, [0], "x")


@pytest.mark.parametrize("path", [3, None, [1], b"a.sdd", 1.5])
def test_what_is_no_path(circuit, path):
    for call in (dv.circuit.load, circuit.save, dv.Program.from_file):
        assert "path" in refuses(call, path)
    if path is not None:
        refuses(circuit.to_dot, path)


@pytest.mark.parametrize("number", ["x", -1, 1.5, True])
def test_numbers_of_variables(circuit, tmp_path, number):
    circuit.save(tmp_path / "a.dvc")
    refuses(dv.circuit.load, tmp_path / "a.dvc", num_variables=number)


def test_seeds_and_jax_input(circuit):
    for seed in ("x", 1.5, [1]):
        refuses(circuit.sample, 3, seed=seed)
    for weights in (None, "x", [0.5, "a", 0.5]):
        refuses(circuit.to_jax("real"), weights)


@pytest.mark.parametrize("constraint", [None, 3, [1], [None], [["a"]], [[0]], ""])
def test_constraints(constraint):
    import torch

    refuses(dv.nn.SemanticLoss, constraint)
    refuses(dv.nn.semantic_loss, constraint, torch.rand(2))


@pytest.mark.parametrize("groups", [3, [3], [["a"]], [[0]], [[-1]], [[1, 1]], [[]], [[1.5]], "ab"])
def test_exclusive_groups(groups):
    import torch

    refuses(dv.nn.SemanticLoss, [[1, 2]], exclusive=groups)
    refuses(dv.nn.semantic_loss, [[1, 2]], torch.rand(2), exclusive=groups)
    refuses(dv.nn.semantic_loss, [[1, 2]], None)
    refuses(dv.nn.semantic_loss, [[1, 2]], torch.rand(2), inputs=[])
