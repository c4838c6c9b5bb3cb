"""What a fold of JAX arrays leaves for its gradient: asked for only then, right under every transformation."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import derivable as dv
from derivable.bridge.fold import Fold
from derivable.bridge.jax import _elsewhere
from derivable.device.cpu import threads
from derivable.parallel import element_by_index, element_cuts
from parallel import operator_cases

P = dv.parallel
SATADD = P.operator(lambda a, b: dv.minimum(a + b, 2.5), neutral=0.0)
SOFT_OR = P.operator(lambda a, b: a + b - a * b, neutral=0.0)
WEIGHTS = np.linspace(1, 2, 3)


@pytest.fixture(autouse=True)
def _wide_on_one_thread():
    before = threads.get_num_threads()
    threads.set_num_threads(1)
    with jax.enable_x64(True):
        yield
    threads.set_num_threads(before)


@pytest.fixture
def kept(monkeypatch):
    """How many arrays each forward pass kept that was asked to."""
    counts = []
    run = element_by_index.reduce_by_index_keeping

    def counted(*arguments, **options):
        found = run(*arguments, **options)
        counts.append(0 if found[1] is None else len(found[1]))
        return found

    monkeypatch.setattr(element_by_index, "reduce_by_index_keeping", counted)
    return counts


def arguments(rows=50, copies=None, dtype="float64"):
    rng = np.random.default_rng(0)
    shape = (rows,) if copies is None else (copies, rows)
    indices, values = rng.integers(-1, 4, shape), rng.random(shape) / 4
    return jnp.asarray(rng.random(3).astype(dtype)), jnp.asarray(indices), jnp.asarray(values.astype(dtype))


def walked_again(op, destination, indices, values, seed):
    """The gradients by the rule that is handed nothing."""
    fold = Fold("reduce_by_index", op.typed((str(values.dtype),)))
    operands = [np.asarray(destination), np.asarray(values)]
    indices = np.asarray(indices)
    return fold.pull(indices, [np.asarray(seed)], operands, fold.apply(indices, operands))


@pytest.mark.parametrize(
    ("op", "index_dtype", "jit"),
    [
        pytest.param(op, width, jit, id=f"{name}-{width}-{jit}", marks=() if is_quick else pytest.mark.slow)
        for name, op, quick in (
            ("satadd", SATADD, [("int64", False), ("int32", True), ("int64", True)]),
            ("soft or", SOFT_OR, [("int64", True)]),
        )
        for width, jit in itertools.product(["int32", "int64"], [False, True])
        for is_quick in [(width, jit) in quick]
    ],
)
def test_gradients_have_the_bits_of_the_longer_way(op, index_dtype, jit, kept):
    destination, indices, values = arguments()
    indices, seed = indices.astype(index_dtype), jnp.asarray([-1.0, 0.5, 2.0])

    def both(x, y):
        result, pull = jax.vjp(lambda x, y: P.reduce_by_index(x, op, indices, y), x, y)
        return result, *pull(seed)

    result, *found = (jax.jit(both) if jit else both)(destination, values)
    assert kept == [1]
    for mine, other in zip(found, walked_again(op, destination, indices, values, seed)):
        np.testing.assert_array_equal(mine, other)
    np.testing.assert_array_equal(result, P.reduce_by_index(destination, op, indices, values))


def test_nothing_is_kept_when_no_gradient_is_asked_for(kept):
    destination, indices, values = arguments()
    P.reduce_by_index(destination, SATADD, indices, values)
    jax.jit(lambda y: P.reduce_by_index(destination, SATADD, indices, y))(values)
    assert kept == []
    # Sums have a rule that reads nothing.
    jax.grad(lambda y: P.reduce_by_index(destination, "add", indices, y).sum())(values)
    assert kept == []


def test_rows_that_are_cut_for_threads_keep_nothing(kept, monkeypatch):
    monkeypatch.setattr(element_cuts, "MIN_CHUNK", 4)
    threads.set_num_threads(3)
    destination, indices, values = arguments()
    gradient = jax.jit(jax.grad(lambda y: P.reduce_by_index(destination, SOFT_OR, indices, y) @ WEIGHTS))
    found = gradient(values)
    assert kept == []
    np.testing.assert_array_equal(found, walked_again(SOFT_OR, destination, indices, values, WEIGHTS)[1])


def test_threads_may_change_after_tracing(kept, monkeypatch):
    monkeypatch.setattr(element_cuts, "MIN_CHUNK", 4)
    destination, indices, values = arguments()
    gradient = jax.jit(jax.grad(lambda y: P.reduce_by_index(destination, SOFT_OR, indices, y) @ WEIGHTS))
    expected = gradient(values)
    threads.set_num_threads(3)
    np.testing.assert_array_equal(gradient(values), expected)
    assert kept == [1, 1]


@pytest.mark.slow
def test_the_tree_form_takes_the_same_arguments():
    """What a device without the kernels computes: it reads nothing of what was kept."""
    destination, indices, values = arguments()
    fold, seed = Fold("reduce_by_index", SOFT_OR.typed(("float64",))), jnp.asarray(WEIGHTS)
    apply, apply_keeping, pull = _elsewhere(fold)
    results, arrays = apply_keeping(indices, [destination, values], whole=True)
    same, ours = fold.apply_keeping(np.asarray(indices), [np.asarray(destination), np.asarray(values)], whole=True)
    assert [(x.shape, x.dtype) for x in arrays] == [(x.shape, x.dtype) for x in ours]
    np.testing.assert_allclose(results[0], same[0], rtol=1e-12)
    np.testing.assert_array_equal(apply(indices, [destination, values])[0], results[0])
    found = pull(indices, [seed], [destination, values], results, arrays)
    for mine, other in zip(found, walked_again(SOFT_OR, destination, indices, values, seed)):
        np.testing.assert_allclose(mine, other, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize(("outer", "inner"), list(itertools.product([jax.jacfwd, jax.jacrev], repeat=2)))
def test_second_derivatives(outer, inner):
    destination, indices, values = arguments(rows=8)

    def ours(x, y):
        return (P.reduce_by_index(x, SOFT_OR, indices, y) * WEIGHTS).prod()

    def theirs(x, y):
        for k, bucket in enumerate(np.asarray(indices)):
            if 0 <= bucket < 3:
                x = x.at[bucket].set(x[bucket] + y[k] - x[bucket] * y[k])
        return (x * WEIGHTS).prod()

    def second(function):
        return jax.tree.leaves(jax.jit(outer(inner(function, argnums=(0, 1)), argnums=(0, 1)))(destination, values))

    for mine, other in zip(second(ours), second(theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-11, atol=1e-13)


def test_mapped_seeds():
    destination, indices, values = arguments()
    result, pull = jax.vjp(lambda y: P.reduce_by_index(destination, SOFT_OR, indices, y), values)
    expected = np.stack([pull(seed)[0] for seed in jnp.eye(len(result))])
    np.testing.assert_allclose(jax.vmap(pull)(jnp.eye(len(result)))[0], expected, rtol=1e-12)


def test_elements_with_places_in_both_widths(kept):
    argmax = P.operator(operator_cases.best, neutral=(-np.inf, 2**62), commutative=True)
    # The kernels' places have 64 bits, which JAX can only hold when it is told to.
    for wide, dtypes, number in ((True, ("int64", "int32"), 2), (False, ("int32",), 0)):
        with jax.enable_x64(wide):
            _gradient_of_argmax(argmax, dtypes, kept, number)


def _gradient_of_argmax(argmax, dtypes, kept, number):
    _, indices, values = arguments(dtype="float32")
    for place_dtype in dtypes:
        places = jnp.arange(50, dtype=place_dtype)
        into = jnp.full(3, -jnp.inf, "float32"), jnp.full(3, 99, place_dtype)

        def largest(y, into=into, places=places):
            top, place = P.reduce_by_index(into, argmax, indices, (y, places))
            return top.sum(), place

        gradient, place = jax.jit(jax.grad(largest, has_aux=True))(values)
        assert np.flatnonzero(gradient).tolist() == sorted(place.tolist())
        assert sum(kept) == number
        kept.clear()


@pytest.mark.parametrize("cut", [False, True])
def test_winners_of_maxima_under_every_map(cut, kept, monkeypatch):
    if cut:
        monkeypatch.setattr(element_cuts, "MIN_CHUNK", 4)
        threads.set_num_threads(3)
    destination, indices, values = arguments(copies=4)
    values = jnp.round(16 * values) / 16

    def value(x, where, y):
        return P.reduce_by_index(x, "max", where, y) @ WEIGHTS

    def expected(where, y):
        """The first of the largest takes all."""
        gradient, first = np.zeros(len(y)), np.zeros(3)
        for bucket in range(3):
            rows = np.flatnonzero(where == bucket)
            best = rows[np.argmax(y[rows])]
            if y[best] > destination[bucket]:
                gradient[best] = WEIGHTS[bucket]
            else:
                first[bucket] = WEIGHTS[bucket]
        return first, gradient

    each = [expected(np.asarray(where), np.asarray(y)) for where, y in zip(indices, values)]
    same = [expected(np.asarray(indices[0]), np.asarray(y)) for y in values]
    assert any(gradient.any() for _, gradient in each)
    slope = jax.grad(value, argnums=(0, 2))
    for found in (
        jax.vmap(slope, (None, 0, 0))(destination, indices, values),
        jax.jit(jax.vmap(slope, (None, 0, 0)))(destination, indices, values),
    ):
        np.testing.assert_array_equal(found[0], [first for first, _ in each])
        np.testing.assert_array_equal(found[1], [gradient for _, gradient in each])
    found = jax.vmap(slope, (None, None, 0))(destination, indices[0], values)
    np.testing.assert_array_equal(found[1], [gradient for _, gradient in same])

    def total(x, y):
        return jax.vmap(value, (None, 0, 0))(x, indices, y).sum()

    found = jax.jit(jax.grad(total, argnums=(0, 1)))(destination, values)
    np.testing.assert_array_equal(found[1], [gradient for _, gradient in each])
    np.testing.assert_allclose(found[0], sum(first for first, _ in each))
    # Both indices and, further out, values mapped.
    twice = jax.vmap(jax.vmap(slope, (None, 0, 0)), (None, None, 0))(destination, indices, jnp.stack([values, values]))
    np.testing.assert_array_equal(twice[1], [[gradient for _, gradient in each]] * 2)
    assert set(kept) == {1}


def test_checkpoints_and_loops():
    destination, indices, values = arguments()

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
