"""Circuits as hardware: errors within their bounds, the golden model, and SystemVerilog that agrees bit by bit."""

import math
import shutil
import subprocess
from fractions import Fraction

import numpy as np
import pytest

import derivable as dv
from circuit.random_circuits import random_arrays
from data import data_path
from derivable.circuit.rtl.rtl import CircuitRtl
from derivable.core.and_or import AND, LITERAL, TRUE
from derivable.core.diagnostics import DomainError, LimitError, ShapeError

needs_icarus = pytest.mark.skipif(shutil.which("iverilog") is None, reason="Icarus Verilog is not installed")
needs_verilator = pytest.mark.skipif(shutil.which("verilator") is None, reason="Verilator is not installed")


def formulas(seed: int):
    """A random formula over seven variables, compiled: decomposable and deterministic."""
    rng = np.random.default_rng(seed)
    variables = dv.circuit.variables("a b c d e f g")
    clauses = [
        dv.circuit.disjunction(*[v if rng.random() < 0.5 else ~v for v in rng.choice(variables, 3, replace=False)])
        for _ in range(8)
    ]
    return dv.circuit.compile(dv.circuit.conjunction(*clauses))


def any_circuit(seed: int):
    """A random circuit of which nothing is known."""
    rng = np.random.default_rng(seed)
    builder = dv.circuit.CircuitBuilder()
    ids = builder.add_nodes(*random_arrays(rng, 4, 12, max_children=3, constants=False))
    return builder.build(ids[-4:])


def sums_of_digits(digits: int = 10):
    """The roots of all sums of two digits, over one variable for each value of each."""
    builder = dv.circuit.CircuitBuilder()
    one, two = ([builder.literal(1 + place * digits + value) for value in range(digits)] for place in range(2))
    return builder.build(
        [
            builder.disjunction(
                [builder.conjunction([one[i], two[total - i]]) for i in range(digits) if 0 <= total - i < digits]
            )
            for total in range(2 * digits - 1)
        ]
    )


def exact(circuit, positive, negative):
    """Values of all roots in fractions, by the definition."""
    values = []
    for node, kind in enumerate(circuit.kind):
        row = circuit.children[circuit.offsets[node] : circuit.offsets[node + 1]]
        if kind == LITERAL:
            literal = int(circuit.literal[node])
            values.append(Fraction((positive if literal > 0 else negative)[abs(literal) - 1]))
        elif kind == AND:
            values.append(math.prod((values[child] for child in row), start=Fraction(1)))
        elif len(row):
            values.append(sum((values[child] for child in row), Fraction(0)))
        else:
            values.append(Fraction(int(kind == TRUE)))
    return [values[root] for root in circuit.roots]


def log(numbers):
    with np.errstate(divide="ignore"):
        return np.log(numbers)


@pytest.mark.parametrize("make", [formulas, any_circuit])
@pytest.mark.parametrize("seed", range(3))
def test_values_are_within_the_bound_of_exact_ones(make, seed):
    circuit = make(seed)
    rng = np.random.default_rng(seed)
    positive = rng.random((6, circuit.num_variables))
    positive[0], positive[1] = 1, rng.integers(0, 2, circuit.num_variables)
    wanted = np.array([[float(one) for one in exact(circuit, row, 1 - row)] for row in positive])
    for bits in (3, 8, 14):
        made = circuit.to_rtl("real", bits)
        assert (np.abs(made.evaluate(positive) - wanted) <= made.error + 1e-12).all()
    for bits in (2, 6, 10):
        made = circuit.to_rtl("log", bits)
        values = made.evaluate(log(positive), log(1 - positive))
        zero = np.isneginf(values)
        assert (wanted[zero] <= np.broadcast_to(made.lost, wanted.shape)[zero]).all()
        off = np.abs(values[~zero] - np.log(wanted[~zero]))
        assert (off <= np.broadcast_to(made.error, wanted.shape)[~zero] + 1e-12).all()


def test_bounds_are_of_use():
    """They shrink by half with each bit, and are less than a hundred times the largest error of random weights."""
    circuit = formulas(0)
    positive = np.random.default_rng(0).random((500, 7))
    wanted = circuit.evaluate(positive)
    for semiring, weights in (("real", positive), ("log", np.log(positive))):
        seen = [circuit.to_rtl(semiring, bits) for bits in (6, 7)]
        assert seen[1].error[0] == pytest.approx(seen[0].error[0] / 2, rel=0.2)
        values = seen[1].evaluate(weights)
        off = np.abs(values - (wanted if semiring == "real" else np.log(wanted))).max()
        assert off < seen[1].error[0] < 100 * off


def test_the_arithmetic_by_hand():
    a, b, c = dv.circuit.variables("a b c")
    made = dv.circuit.compile((a & b) | (~a & c)).to_rtl("real", 4)
    # 9/16 * 5/16 rounds to 3/16 and 7/16 * 11/16 to 5/16.
    weights = np.array([9, 5, 11]) / 16
    circuit = made.circuit
    assert circuit.num_roots == 1
    assert abs(made.evaluate(weights)[0] - 8 / 16) <= 1 / 16
    product = made.pipeline.arithmetic.product
    assert product(np.array([9, 7, 16]), np.array([5, 11, 16])).tolist() == [3, 5, 16]
    logs = dv.circuit.compile(a & b).to_rtl("log", 4).pipeline.arithmetic
    # Half and half are one, half and a quarter 2^-0.415, half and nothing half.
    assert logs.sum(np.array([16, 16, 16]), np.array([16, 32, logs.zero])).tolist() == [0, 7, 16]
    assert logs.product(np.array([16, 5]), np.array([32, logs.zero])).tolist() == [48, logs.zero]


def test_words_are_as_short_as_values_allow():
    circuit = formulas(1)
    assert circuit.determinism.holds
    free = circuit.to_rtl("real", 8, normalised=False)
    # Values up to 1 and their error, and up to the number of models and more.
    assert circuit.to_rtl("real", 8).pipeline.operations[-1].bounds.value == 1
    assert free.pipeline.operations[-1].bounds.value >= circuit.model_count() / 2**7
    ones = np.ones(7)
    assert free.evaluate(ones, ones)[0] == circuit.evaluate(ones, ones)[0]
    with pytest.raises(DomainError, match="2 together, more than 1"):
        circuit.to_rtl("real", 8).evaluate(ones, ones)
    logs = circuit.to_rtl("log", 8, normalised=False)
    assert logs.evaluate(0 * ones, 0 * ones)[0] == pytest.approx(math.log(circuit.evaluate(ones, ones)[0]), abs=0.05)


def test_sums_of_digits():
    circuit = sums_of_digits()
    weights = np.random.default_rng(0).dirichlet(np.ones(10), (50, 2)).reshape(50, 20)
    wanted = np.array([np.convolve(row[:10], row[10:]) for row in weights])
    made = circuit.to_rtl("real", 12)
    assert (np.abs(made.evaluate(weights) - wanted) <= made.error).all()
    assert made.error.max() < 0.004
    assert (made.pipeline.count("product"), made.pipeline.count("sum")) == (100, 81)


def test_constants_literals_and_no_roots():
    builder = dv.circuit.CircuitBuilder()
    circuit = builder.build([builder.true(), builder.false(), builder.literal(-2)])
    for semiring, values in (("real", [1, 0, 0.75]), ("log", [0, -np.inf, np.log(0.75)])):
        weights = np.array([0.5, 0.25]) if semiring == "real" else np.log([0.5, 0.25])
        np.testing.assert_allclose(circuit.to_rtl(semiring, 8).evaluate(weights), values, atol=0.003)


def test_errors():
    circuit = formulas(0)
    with pytest.raises(DomainError, match="no hardware for the semiring 'reel'") as caught:
        circuit.to_rtl("reel")
    assert "real" in caught.value.hint
    with pytest.raises(DomainError, match="bits behind the point"):
        circuit.to_rtl("log", 13)
    made = circuit.to_rtl()
    with pytest.raises(ShapeError, match=r"weights is \[3\], expected \[\*batch, 7\]"):
        made.evaluate(np.ones(3))
    with pytest.raises(DomainError, match=r"weights\[1, 2\] is 1.5, expected 0 to 1"):
        made.evaluate(np.where(np.arange(14).reshape(2, 7) == 9, 1.5, 0.5))
    with pytest.raises(DomainError, match="nan"):
        made.evaluate(np.full(7, np.nan))
    builder = dv.circuit.CircuitBuilder()
    node = builder.literal(1)
    for variable in range(2, 40, 2):
        node = builder.conjunction(
            [node, builder.disjunction([builder.literal(variable), builder.literal(variable + 1)])]
        )
    with pytest.raises(LimitError, match="more than 31"):
        builder.build([node]).to_rtl("real", 24)
    with pytest.raises(DomainError, match="the roots of the circuit are constants"):
        any_circuit(11).to_rtl()


def test_printed_forms():
    builder = dv.circuit.CircuitBuilder()
    both = builder.conjunction([builder.literal(1), builder.literal(2)])
    made = builder.build([builder.disjunction([both, builder.literal(-1)])]).to_rtl("real", 8)
    assert str(made.pipeline).splitlines() == [
        "0 = x1                 cycle  0   9 bits",
        "1 = -x1                cycle  0   9 bits",
        "2 = x2                 cycle  0   9 bits",
        "3 = product 0 2        cycle  2   9 bits",
        "4 = sum 1 3            cycle  3   9 bits   root 0",
    ]
    assert str(made).splitlines() == [
        "circuit     1 product, 1 sum of numbers with 8 bits behind the point",
        "latency     3 cycles, an evaluation a cycle",
        "weights     3 literals of 9 bits",
        "values      1 root of 9 bits, within 0.0078 of the exact one",
    ]
    assert repr(made) == "<CircuitRtl real 8 bits, 1 products, 1 sums, 3 cycles>"


def simulate(made: CircuitRtl, folder, tool="icarus", weights=None) -> str:
    made.write(folder, weights)
    done = subprocess.run(["make", "-C", str(folder), tool], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return done.stdout


@needs_icarus
@pytest.mark.parametrize(("semiring", "bits"), [("real", 9), ("log", 6)])
def test_the_hardware_is_the_golden_model(tmp_path, semiring, bits):
    made = formulas(2).to_rtl(semiring, bits)
    assert f"passed: 64 rows, latency {made.latency} cycles" in simulate(made, tmp_path)


@needs_icarus
def test_the_testbench_can_fail(tmp_path):
    formulas(2).to_rtl("real", 5).write(tmp_path)
    values = (tmp_path / "values.hex").read_text().splitlines()
    values[10] = f"{int(values[10], 16) ^ 1:x}"
    (tmp_path / "values.hex").write_text("\n".join(values))
    done = subprocess.run(["make", "-C", str(tmp_path), "icarus"], capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "failed: row 10" in done.stdout


@needs_icarus
@pytest.mark.slow
@pytest.mark.parametrize("seed", [10, 12, 13, 14])
@pytest.mark.parametrize(("semiring", "bits"), [("real", 1), ("real", 14), ("log", 1), ("log", 9)])
def test_hardware_of_any_circuit(tmp_path, semiring, bits, seed):
    made = any_circuit(seed).to_rtl(semiring, bits)
    assert "passed" in simulate(made, tmp_path)


@needs_verilator
@pytest.mark.slow
@pytest.mark.parametrize(("semiring", "bits"), [("real", 12), ("log", 6)])
def test_hardware_in_verilator(tmp_path, semiring, bits):
    assert "passed" in simulate(sums_of_digits().to_rtl(semiring, bits), tmp_path, "verilator")


@needs_icarus
@pytest.mark.slow
@pytest.mark.parametrize(("semiring", "bits"), [("real", 12), ("log", 6)])
def test_sudoku(tmp_path, semiring, bits):
    circuit = dv.circuit.load(data_path("circuits/sudoku_4.sdd.gz"))
    made = circuit.to_rtl(semiring, bits)
    positive = np.random.default_rng(0).random((20, 64))
    weights = positive if semiring == "real" else np.log(positive)
    off = np.abs(made.evaluate(weights) - circuit.evaluate(weights, semiring=semiring))
    assert (off <= made.error).all()
    assert "passed" in simulate(made, tmp_path / "kit", weights=weights)
