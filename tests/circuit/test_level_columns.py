"""Circuits as column programs: valid, and the same by the reference, torch and JAX as by the kernels."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuit.decimal_circuits import random_circuit
from derivable.algebra import semirings
from derivable.bridge.columns import OPERANDS, pull
from derivable.circuit.fold.level_columns import LevelColumns, levels_of
from derivable.core.diagnostics import UnsupportedError
from derivable.parallel.program import nodes as n
from derivable.parallel.program.check import check_program
from derivable.parallel.program.execute import execute
from derivable.parallel.program.graph import Graph
from derivable.parallel.program.numpy_columns import NumPy
from derivable.parallel.program.text import program_text

RINGS = ["real", "log", "max_product", "min_plus", "max_plus", "godel"]


def columns_of(circuit, name, groups=2):
    typed = semirings.get(name).typed("float64")
    return LevelColumns(
        levels_of(circuit), typed.plus, typed.times, typed.complement, typed.negation, groups, differentiable=True
    )


def weights_of(name, rng, *shape):
    weights = rng.random(shape) * 0.8 + 0.1
    return np.log(weights) if name in ("log", "min_plus", "max_plus") else weights


@settings(deadline=None)
@given(st.integers(0, 1000), st.sampled_from(RINGS), st.sampled_from([1, 2, 4, 9]), st.booleans())
def test_programs_are_the_kernels_and_their_finite_differences(seed, name, widest, has_batch):
    rng = np.random.default_rng(seed)
    circuit = random_circuit(rng, 4, 12, 2, max(widest, 2))
    engine = columns_of(circuit, name)
    check_program(engine.program.results)
    operands = [weights_of(name, rng, *([3] * has_batch), 4) for _ in range(2)]
    expected = circuit.evaluate(*operands, semiring=name)
    (found,) = engine.apply(None, operands)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)
    seeds = rng.random(expected.shape)
    by_reference = pull(engine.program, [x.reshape(-1, 4).T for x in operands], [seeds.reshape(-1, 2).T], NumPy())
    for k, adjoint in enumerate(engine.pull(None, [seeds], operands, [found])):
        meant = 0.0 if by_reference[k] is None else by_reference[k]
        np.testing.assert_allclose(adjoint.reshape(-1, 4).T, meant, rtol=1e-12, atol=1e-15)
        step = np.zeros_like(operands[k])
        step[..., 1] = 1e-6
        ends = [
            engine.apply(None, [x + sign * step if j == k else x for j, x in enumerate(operands)])[0]
            for sign in (1, -1)
        ]
        # A root that is false is -inf at both ends.
        change = np.subtract(*ends, out=np.zeros_like(ends[0]), where=ends[0] != ends[1])
        slope = (change * seeds).sum(-1) / 2e-6
        np.testing.assert_allclose(adjoint[..., 1], slope, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", RINGS)
def test_jax_arrays_of_other_devices(name):
    jax = pytest.importorskip("jax")
    circuit = random_circuit(np.random.default_rng(1), 4, 12, 2)
    engine = columns_of(circuit, name, groups=2).dual
    rng = np.random.default_rng(2)
    operands = [weights_of(name, rng, 2, 4) for _ in range(4)]
    apply, pull_ = engine.elsewhere("JAX")
    with jax.enable_x64(True):
        expected = engine.apply(None, operands)
        seeds = [rng.random(x.shape) for x in expected]
        found, adjoints = jax.jit(lambda x, c: (apply(None, x), pull_(None, c, x, ())))(operands, seeds)
    for one, other in zip([*found, *adjoints], [*expected, *engine.pull(None, seeds, operands, expected)], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-15)


def test_the_printed_form():
    circuit = random_circuit(np.random.default_rng(0), 4, 12, 1)
    text = program_text(columns_of(circuit, "real", groups=1).program.results, ["value"])
    assert "given operands" in text
    assert "complement" in text
    assert "split" in text


def test_a_level_takes_few_operations():
    """Three children are padded to four, so a level is a gather, two rounds of two parts, and its rows."""
    circuit = random_circuit(np.random.default_rng(3), 40, 400, 1, 3)
    program = columns_of(circuit, "real", groups=1).program
    assert len(program.steps) < 14 * circuit.num_levels


def test_jax_refuses_sizes_found_at_run_time():
    pytest.importorskip("jax")
    from derivable.bridge.jnp_columns import Jnp

    graph = Graph()
    (mask,) = graph(n.Given, OPERANDS, (n.Type("bool"),))
    with pytest.raises(UnsupportedError, match="sizes at run time"):
        execute([graph.one(n.Compact, mask)], {OPERANDS: [np.array([True, False])]}, Jnp())
