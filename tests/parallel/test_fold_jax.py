"""What JAX alone does with folds: compiled programs, 32 bits, loops, and the tree forms of other devices."""

import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import derivable as dv
from derivable.algebra.monoids import NAMED
from derivable.bridge import jnp_folds
from derivable.bridge.fold import Fold
from derivable.bridge.jax import _elsewhere
from derivable.core.diagnostics import DerivableError, LayoutError
from parallel.operator_cases import BY_NAME, best

P = dv.parallel
OFFSETS, INDICES, WEIGHTS = np.array([0, 2, 2, 6]), np.array([1, 3, 1, 9, 0, 1]), np.linspace(1, 2, 3)
SOFT_OR, ARGMAX = BY_NAME["soft or"].operator, P.operator(best, neutral=(-np.inf, 2**62), commutative=True)


@pytest.fixture(autouse=True)
def _of_64_bits():
    with jax.enable_x64(True):
        yield


def test_mapped_offsets_that_leave_elements_out():
    values, offsets = jnp.ones(5), jnp.array([[0, 2, 5], [0, 2, 4]])
    mapped = jax.vmap(lambda o: P.segment_reduce("add", values, o))
    with pytest.raises(LayoutError, match="offsets go from 0 to 4, not from 0 to 5"):
        mapped(offsets)
    with pytest.raises(jax.errors.JaxRuntimeError, match="offsets decrease"):
        jax.jit(mapped)(offsets).block_until_ready()


def test_thirty_two_bits():
    with jax.enable_x64(False):
        x = jnp.array([3, 1, 2])
        assert x.dtype == jnp.int32
        assert P.scan("add", x).dtype == jnp.int32
        assert jax.jit(lambda x: P.scan("min", x, exclusive=True))(x).tolist() == [2**31 - 1, 3, 1]
        y = jax.jit(jax.grad(lambda x: P.reduce("mul", x)))(x.astype(jnp.float32))
        assert y.dtype == jnp.float32
        assert y.tolist() == [2, 6, 3]
        found = P.reduce_by_index(jnp.zeros(2), "add", jnp.array([0, 1, 1]), jnp.ones(3))
        assert found.tolist() == [1, 2]
        # Positions of the kernels have 64 bits, which JAX has not: the gradient looks for the largest again.
        into = jnp.full(2, -jnp.inf), jnp.full(2, 99)
        top = jax.grad(lambda y: P.reduce_by_index(into, ARGMAX, jnp.array([0, 1, 1]), (y, jnp.arange(3)))[0].sum())
        assert top(jnp.array([1.0, 2.0, 5.0])).tolist() == [1, 0, 1]


def test_numpy_arrays_may_stand_beside():
    found = P.reduce_by_index(np.zeros(2), "add", [0, 1, 1], jnp.ones(3))
    assert isinstance(found, jax.Array)
    assert found.tolist() == [1, 2]


def test_offsets_are_checked_where_they_have_values():
    x = jnp.ones(4)
    with pytest.raises(DerivableError, match="offsets decrease"):
        P.segment_reduce("add", x, jnp.array([0, 3, 2, 4]))
    with pytest.raises(Exception, match="offsets decrease at index 2: 3 is followed by 2"):
        jax.block_until_ready(jax.jit(lambda o: P.segment_reduce("add", x, o))(jnp.array([0, 3, 2, 4])))


def test_large_arrays():
    """XLA calls back from a thread of its own, which must wait for no other and knows no setting of this one."""
    x = jnp.ones(3_000_000)
    found = jax.jit(jax.grad(lambda x: (P.scan("add", x * 2) * 1.0).sum()))(x)
    assert found[:2].tolist() == [6_000_000, 5_999_998]


def test_inside_loops_and_several_threads():
    x = jnp.ones(4)
    found = jax.jit(lambda x: jax.lax.fori_loop(0, 3, lambda _, x: P.scan("add", x), x))
    expected = np.cumsum(np.cumsum(np.cumsum(np.ones(4))))
    results = []
    threads = [threading.Thread(target=lambda: results.append(found(x).tolist())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected.tolist()] * 4

    def last_of_each(x):
        return jax.lax.scan(lambda c, _: (P.scan("add", c), c[-1]), x, None, length=3)[1].sum()

    # 1 + (1, 1, 1, 1) + (4, 3, 2, 1), the weights of x in the last entries.
    assert jax.jit(jax.grad(last_of_each))(x).tolist() == [5, 4, 3, 3]


@pytest.mark.slow
def test_compiled_programs_are_found_again_in_another_process(tmp_path):
    """JAX keeps them on disk; another operator must not get the program of the first."""
    code = """
import sys, jax, jax.numpy as jnp, derivable as dv
jax.config.update("jax_compilation_cache_dir", sys.argv[1])
jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
print(jax.jit(lambda x: dv.parallel.scan(sys.argv[2], x))(jnp.array([1.0, 2.0, 4.0])).tolist())
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    for name, expected in (("add", "[1.0, 3.0, 7.0]"), ("add", "[1.0, 3.0, 7.0]"), ("mul", "[1.0, 2.0, 8.0]")):
        command = [sys.executable, "-c", code, str(tmp_path), name]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        assert done.stdout.strip() == expected, done.stderr
    assert list(tmp_path.iterdir())


def test_checkpoints_and_loops():
    destination, indices, values = jnp.arange(3) / 4, jnp.arange(50) % 4, jnp.linspace(0, 0.25, 50)

    def step(x, y):
        return P.reduce_by_index(x, SOFT_OR, indices, y)

    def plain(y):
        return step(step(destination, y), 2 * y) @ WEIGHTS

    def looped(y):
        return (
            jax.lax.scan(lambda x, scale: (step(x, scale * y), None), destination, jnp.asarray([1.0, 2.0]))[0] @ WEIGHTS
        )

    def recomputed(y):
        return jax.checkpoint(step)(jax.checkpoint(step)(destination, y), 2 * y) @ WEIGHTS

    expected = jax.grad(plain)(values)
    for function in (looped, recomputed):
        np.testing.assert_allclose(jax.jit(jax.grad(function))(values), expected, rtol=1e-13)


# The tree forms in jax.numpy, which other platforms run, against the kernels.


# kind -> (operators of the normal suite, those of the long one)
TREES = {
    "scan": (["mul", "argmax", "2x2 best paths"], ["min", "linear functions", "2x2 products"]),
    "segmented": (["min", "linear functions"], ["mul", "2x2 products", "argmax", "2x2 best paths"]),
    "reduce_by_index": (["mul", "min"], []),
    "segment_reduce": (["2x2 products", "argmax", "2x2 best paths"], ["mul", "min", "linear functions"]),
}


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=mark)
        for kind, lists in TREES.items()
        for names, mark in zip(lists, ((), pytest.mark.slow))
        for name in names
    ],
)
def test_tree_forms(name, kind):
    """Equally good paths too: on every device the adjoint goes where the kernels send it."""
    op = NAMED[name] if name in ("mul", "min") else BY_NAME[name].operator
    operands = [jnp.asarray(x).round() for x in (BY_NAME.get(name) or BY_NAME["add"]).arrays(6, (2,))]
    if name == "argmax":
        operands[1] = jnp.arange(12).reshape(6, 2)
    typed = op.typed([x.dtype for x in operands])
    structure = {"scan": None, "reduce_by_index": jnp.asarray(INDICES)}.get(kind, jnp.asarray(OFFSETS))
    if kind == "reduce_by_index":
        operands = [x[:4] + 1 for x in operands] + operands
    flags = {"scan": [(False, False), (True, True)], "segmented": [(True, False), (False, True)]}
    for exclusive, reverse in flags.get(kind, [(False, False)]):
        fold = Fold("scan" if kind == "segmented" else kind, typed, exclusive, reverse)  # type: ignore[arg-type]
        on_host = None if structure is None else np.asarray(structure)
        expected = fold.apply(on_host, [np.asarray(x) for x in operands])
        seeds = [np.random.default_rng(5).normal(size=expected[leaf].shape) for leaf in fold.float_leaves]
        pulled = fold.pull(on_host, seeds, [np.asarray(x) for x in operands], expected)

        # In one function: compiling two takes longer.
        def both(s, c, x, y, fold=fold):
            return jnp_folds.apply(fold, s, x), jnp_folds.pull(fold, s, c, x, y)

        found, adjoints = jax.jit(both)(structure, seeds, operands, expected)
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10)
            assert ours.dtype == theirs.dtype
        for ours, theirs in zip(adjoints, pulled, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-10)


@pytest.mark.slow
def test_the_tree_form_takes_the_same_arguments():
    """What a device without the kernels computes: it reads nothing of what was kept."""
    destination, indices, values = jnp.arange(3) / 4, jnp.arange(50) % 4, jnp.linspace(0, 0.25, 50)
    fold, seed = Fold("reduce_by_index", SOFT_OR.typed(("float64",))), jnp.asarray(WEIGHTS)
    apply, apply_keeping, pull = _elsewhere(fold)
    results, arrays = apply_keeping(indices, [destination, values], whole=True)
    same, ours = fold.apply_keeping(np.asarray(indices), [np.asarray(destination), np.asarray(values)], whole=True)
    assert [(x.shape, x.dtype) for x in arrays] == [(x.shape, x.dtype) for x in ours]
    np.testing.assert_allclose(results[0], same[0], rtol=1e-12)
    np.testing.assert_array_equal(apply(indices, [destination, values])[0], results[0])
    found = pull(indices, [seed], [destination, values], results, arrays)
    expected = fold.pull(np.asarray(indices), [WEIGHTS], [np.asarray(destination), np.asarray(values)], same)
    for mine, other in zip(found, expected):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-14)
