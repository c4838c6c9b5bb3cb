"""Folds of JAX arrays: every transformation, against jax.numpy's own and against the tree forms."""

import itertools
import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.test_util import check_grads

import derivable as dv
from derivable.algebra.monoids import NAMED
from derivable.bridge import jnp_folds
from derivable.bridge.fold import Fold
from derivable.core.diagnostics import DerivableError, LayoutError
from parallel import operator_cases

P = dv.parallel


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


best = P.operator(operator_cases.best, neutral=(-np.inf, 2**62))
linear = P.operator(lambda f, g: (f[0] * g[0], f[1] * g[0] + g[1]), neutral=(1.0, 0.0))
times = P.operator(lambda a, b: (a[0] * b[0] - a[1] * b[1], a[0] * b[1] + a[1] * b[0]), neutral=(1.0, 0.0))
# name -> (operator, shapes of one element's float leaves)
OPERATORS = {
    "add": ("add", [()]),
    "mul": ("mul", [()]),
    "min": ("min", [()]),
    "logaddexp": ("logaddexp", [()]),
    "satadd": (P.operator(lambda a, b: dv.minimum(a + b, 2.5), neutral=0.0), [()]),
    "linear": (linear, [(), ()]),
    "complex": (times, [(), ()]),
    "product": (P.matrix_product(2), [(2, 2)]),
}
COMMUTATIVE = ["add", "mul", "min", "logaddexp", "satadd", "complex"]
OFFSETS = np.array([0, 2, 2, 6])
INDICES = np.array([1, 3, 1, 9, 0, 1])


def quick(names, chosen):
    """Parameters of which only the chosen ones run in the normal suite: JAX compiles for seconds."""
    return [name if name in chosen else pytest.param(name, marks=pytest.mark.slow) for name in names]


def values_for(shapes, rows, batch=(), seed=0):
    rng = np.random.default_rng(seed)
    made = tuple(jnp.asarray(rng.normal(size=(rows, *batch, *shape))) for shape in shapes)
    return made[0] if len(made) == 1 else made


def finite(value):
    return jax.tree.map(lambda x: jnp.where(jnp.isinf(x), 0.0, x), value)


@pytest.mark.parametrize("name", quick(OPERATORS, ["mul", "linear"]))
def test_derivatives_of_scan(name):
    op, shapes = OPERATORS[name]
    x = values_for(shapes, 4)
    for exclusive, reverse in itertools.product([False, True], repeat=2):

        def scan(x, exclusive=exclusive, reverse=reverse):
            return finite(P.scan(op, x, exclusive=exclusive, reverse=reverse))

        check_grads(jax.jit(scan), (x,), 1 if exclusive or reverse else 2)


@pytest.mark.parametrize("name", quick(OPERATORS, ["min", "linear"]))
def test_derivatives_of_segments(name):
    op, shapes = OPERATORS[name]
    x = values_for(shapes, 6, (2,))
    check_grads(jax.jit(lambda x: finite(P.segmented_scan(op, x, OFFSETS, exclusive=True))), (x,), 1)
    check_grads(jax.jit(lambda x: finite(P.segment_reduce(op, x, OFFSETS))), (x,), 2)
    check_grads(lambda x: P.reduce(op, x), (x,), 1)


@pytest.mark.parametrize("name", quick(COMMUTATIVE, ["add", "mul", "min", "logaddexp"]))
def test_derivatives_of_reduce_by_index(name):
    op, shapes = OPERATORS[name]
    into, values = values_for(shapes, 4, seed=1), values_for(shapes, 6)

    def histogram(into, values):
        return P.reduce_by_index(into, op, INDICES, values)

    check_grads(histogram, (into, values), 1)
    check_grads(jax.jit(histogram), (into, values), 2)


BUILT_IN = {
    "add": jnp.cumsum,
    "mul": jnp.cumprod,
    "logaddexp": lambda x: jax.lax.cumlogsumexp(x),
    "max": lambda x: jax.lax.cummax(x),
    "min": lambda x: jax.lax.cummin(x),
}


@pytest.mark.parametrize("name", quick(BUILT_IN, ["add", "mul"]))
def test_scan_is_what_jax_computes(name):
    x = values_for([()], 9)
    weight = values_for([()], 9, seed=1)
    for transform in (
        lambda scan: scan(x),
        lambda scan: jax.jit(scan)(x),
        lambda scan: jax.grad(lambda x: (scan(x) * weight).sum())(x),
        lambda scan: jax.jit(jax.grad(lambda x: (scan(x) * weight).sum()))(x),
        lambda scan: jax.jvp(scan, (x,), (weight,))[1],
    ):
        np.testing.assert_allclose(
            transform(lambda x: P.scan(name, x)), transform(BUILT_IN[name]), rtol=1e-8, atol=1e-12
        )


@pytest.mark.parametrize(
    ("name", "theirs"), [("add", jax.ops.segment_sum), ("min", jax.ops.segment_min), ("max", jax.ops.segment_max)]
)
def test_reduce_by_index_is_what_jax_computes(name, theirs):
    rng = np.random.default_rng(2)
    indices, values, weight = rng.integers(0, 20, 200), values_for([()], 200), values_for([()], 20, seed=1)
    into = jnp.full(20, NAMED[name].neutral_for(float))
    found, pull = jax.vjp(lambda values: P.reduce_by_index(into, name, indices, values), values)
    expected, pull_theirs = jax.vjp(lambda values: theirs(values, indices, 20), values)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    np.testing.assert_allclose(pull(weight)[0], pull_theirs(weight)[0], rtol=1e-9)


@pytest.mark.parametrize("size", quick([2, 3], [2]))
def test_products_are_those_of_associative_scan(size):
    x, weight = values_for([(size, size)], 7, (2,)), values_for([(size, size)], 7, (2,), seed=1)
    op = P.matrix_product(size)

    def theirs(x):
        return jax.lax.associative_scan(jnp.matmul, x)

    for scan in (lambda x: P.scan(op, x), jax.jit(lambda x: P.scan(op, x))):
        np.testing.assert_allclose(scan(x), theirs(x), rtol=1e-10)
        found, pull = jax.vjp(scan, x)
        np.testing.assert_allclose(pull(weight)[0], jax.vjp(theirs, x)[1](weight)[0], rtol=1e-8)
        tangent = jax.jvp(scan, (x,), (weight,))[1]
        np.testing.assert_allclose(tangent, jax.jvp(theirs, (x,), (weight,))[1], rtol=1e-8)
        assert found.shape == x.shape


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (jax.jacfwd, jax.jacrev),
        (jax.jacrev, jax.jacfwd),
        pytest.param(jax.jacfwd, jax.jacfwd, marks=pytest.mark.slow),
        pytest.param(jax.jacrev, jax.jacrev, marks=pytest.mark.slow),
    ],
)
def test_derivatives_of_derivatives(outer, inner):
    x = jnp.array([2.0, 0.5, -1.0, 3.0])

    def ours(x):
        return P.scan(linear, (jnp.sin(x), x))[1][-1]

    def theirs(x):
        total = x[0]
        for k in range(1, 4):
            total = total * jnp.sin(x[k]) + x[k]
        return total

    np.testing.assert_allclose(outer(inner(ours))(x), outer(inner(theirs))(x), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(jax.jit(outer(inner(ours)))(x), outer(inner(theirs))(x), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(
        outer(jax.grad(lambda x: inner(ours)(x)[1]))(x), outer(jax.grad(lambda x: inner(theirs)(x)[1]))(x), rtol=1e-9
    )


def test_one_result_of_several_is_used():
    a, b = values_for([(), ()], 3)
    found = jax.jit(jax.grad(lambda a, b: P.scan(linear, (a, b))[1][2], argnums=(0, 1)))(a, b)
    expected = jax.grad(lambda a, b: (b[0] * a[1] + b[1]) * a[2] + b[2], argnums=(0, 1))(a, b)
    np.testing.assert_allclose(np.stack(found), np.stack(expected), rtol=1e-12)


def test_a_place_has_no_derivative():
    x = jnp.array([1.0, 5, 2, 5])
    top, place = P.scan(best, (x, jnp.arange(4, dtype=jnp.int32)))
    assert top.tolist() == [1, 5, 5, 5]
    assert place.tolist() == [0, 1, 1, 1]
    assert place.dtype == jnp.int32
    assert jax.grad(lambda x: P.reduce(best, (x, jnp.arange(4)))[0])(x).tolist() == [0, 1, 0, 0]
    (_, tangent), rest = jax.jvp(lambda x: P.scan(best, (x, jnp.arange(4))), (x,), (x,))[1], None
    assert tangent.dtype == jax.dtypes.float0
    assert rest is None


def test_mapped_values_indices_and_offsets():
    rng = np.random.default_rng(3)
    values, into = jnp.asarray(rng.normal(size=(3, 5, 2))), jnp.asarray(rng.normal(size=(4, 3)))
    indices = jnp.asarray(rng.integers(-1, 5, (3, 5)))
    for transform in (lambda f: f, jax.jit):

        def one(into, indices, values):
            return P.reduce_by_index(into, "mul", indices, values)

        mapped = transform(jax.vmap(one, in_axes=(1, 0, 0)))
        wide = jnp.stack([into, into + 1], -1)
        expected = [one(wide[:, k], indices[k], values[k]) for k in range(3)]
        np.testing.assert_allclose(mapped(wide, indices, values), jnp.stack(expected), rtol=1e-12)
        offsets = jnp.array([[0, 2, 5], [0, 5, 5], [0, 0, 5]])
        found = transform(jax.vmap(lambda o, x: P.segment_reduce("max", x, o), in_axes=(0, None)))(offsets, values[0])
        expected = [P.segment_reduce("max", values[0], o) for o in offsets]
        np.testing.assert_array_equal(found, jnp.stack(expected))
        found = transform(jax.vmap(lambda o, x: P.segmented_scan("add", x, o, reverse=True)))(offsets, values)
        expected = [P.segmented_scan("add", x, o, reverse=True) for o, x in zip(offsets, values)]
        np.testing.assert_allclose(found, jnp.stack(expected), rtol=1e-12)
    # One is mapped, the others are not; and derivatives of what is mapped.
    found = jax.vmap(lambda v: P.reduce_by_index(into[:, 0], "add", indices[0], v), in_axes=-1, out_axes=-1)(values[0])
    expected = P.reduce_by_index(jnp.stack([into[:, 0]] * 2, -1), "add", indices[0], values[0])
    np.testing.assert_allclose(found, expected, rtol=1e-12)

    def total(values, indices):
        return P.reduce_by_index(into[:, 0], "mul", indices, values).sum()

    found = jax.vmap(jax.grad(total))(values[:, :, 0], indices)
    expected = [jax.grad(total)(v, i) for v, i in zip(values[:, :, 0], indices)]
    np.testing.assert_allclose(found, jnp.stack(expected), rtol=1e-12)


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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_small_floats(dtype):
    x = jnp.array([0.5, 1.5, 2.0], dtype)
    found, gradient = jax.jit(jax.value_and_grad(lambda x: P.scan("mul", x)[2]))(x)
    assert found.dtype == gradient.dtype == dtype
    assert gradient.tolist() == [3, 1, 0.75]


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


# The tree forms in jax.numpy, which other platforms run, against the kernels.


# kind -> (operators of the normal suite, those of the long one)
TREES = {
    "scan": (["mul", "best", "paths"], ["min", "linear", "product"]),
    "segmented": (["min", "linear"], ["mul", "product", "best", "paths"]),
    "reduce_by_index": (["mul", "min"], []),
    "segment_reduce": (["product", "best", "paths"], ["mul", "min", "linear"]),
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
    if name == "best":
        op, values = best, (values_for([()], 6, (2,)).round(), jnp.arange(12).reshape(6, 2))
    elif name == "paths":
        op, values = P.matrix_product(2, "max_plus"), values_for([(2, 2)], 6, (2,)).round()
    else:
        op, shapes = OPERATORS[name]
        values = values_for(shapes, 6, (2,))
    operands = list(values) if isinstance(values, tuple) else [values]
    typed = (NAMED[op] if isinstance(op, str) else op).typed([x.dtype for x in operands])
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
