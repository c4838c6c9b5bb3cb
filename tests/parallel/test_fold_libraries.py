"""Folds of torch and of JAX: derivatives of all orders and modes, maps, and each library's own folds beside ours."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import derivable as dv
from derivable.algebra.monoids import NAMED
from derivable.bridge.fold import Fold
from derivable.device.cpu import threads
from derivable.parallel import element_by_index, element_cuts
from parallel.array_libraries import JAX, LIBRARIES, TORCH
from parallel.operator_cases import BY_NAME, best

P = dv.parallel
OFFSETS, INDICES, WEIGHTS = np.array([0, 2, 2, 6]), np.array([1, 3, 1, 9, 0, 1]), np.linspace(1, 2, 3)
SATURATED, SOFT_OR = BY_NAME["saturated add"].operator, BY_NAME["soft or"].operator
LINEAR, ARGMAX = BY_NAME["linear functions"].operator, P.operator(best, neutral=(-np.inf, 2**62), commutative=True)
SHAPES = {name: [()] for name in ("add", "mul", "min", "max", "logaddexp")}
TABLE = [*SHAPES, "saturated add", "linear functions", "complex products", "2x2 products", "3x3 products"]
TABLE += ["2x2 log products", "add, mul, max"]
FLAGS = list(itertools.product([False, True], repeat=2))


@pytest.fixture(autouse=True)
def _of_64_bits():
    with jax.enable_x64(True):
        yield


def library_and_name(names, of_jax, slow_of_torch=()):
    """All with torch and some with JAX, which compiles for seconds: the others are slow tests."""
    quick = {TORCH: set(names) - set(slow_of_torch), JAX: of_jax}
    return [
        pytest.param(library, name, marks=() if name in quick[library] else pytest.mark.slow, id=f"{library}-{name}")
        for library in LIBRARIES
        for name in names
    ]


def operator_named(name):
    return name if name in SHAPES else BY_NAME[name].operator


def arrays_of(name, rows, batch=(), seed=0):
    return BY_NAME["add" if name in SHAPES else name].arrays(rows, batch, seed)


def packed(leaves):
    return leaves[0] if len(leaves) == 1 else tuple(leaves)


def finite(library, results):
    """Without infinite neutral elements, which differences cannot subtract."""
    m, leaves = library.module, results if isinstance(results, tuple) else (results,)
    return tuple(m.where(m.isinf(leaf), 0.0, leaf) for leaf in leaves)


def close(found, expected, rtol=1e-10, atol=1e-12):
    for mine, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(np.asarray(mine), np.asarray(other), rtol=rtol, atol=atol)


@pytest.mark.parametrize(("library", "name"), library_and_name(TABLE, ["mul", "linear functions", "2x2 products"]))
def test_derivatives_of_scans(library, name):
    op, rows = operator_named(name), arrays_of(name, 4)
    for exclusive, reverse in FLAGS:
        order = 2 if library is TORCH or not (exclusive or reverse) else 1
        library.check(
            lambda *x, e=exclusive, r=reverse: finite(library, P.scan(op, packed(x), exclusive=e, reverse=r)),
            rows,
            order,
        )


@pytest.mark.parametrize(("library", "name"), library_and_name(TABLE, ["min", "linear functions"]))
def test_derivatives_of_segments(library, name):
    op, rows = operator_named(name), arrays_of(name, 6, (2,))
    offsets = library.array(OFFSETS)
    for exclusive, reverse in [(True, False)] if library is JAX else FLAGS[::3]:
        library.check(
            lambda *x, e=exclusive, r=reverse: finite(
                library, P.segmented_scan(op, packed(x), offsets, exclusive=e, reverse=r)
            ),
            rows,
            1 if library is JAX else 2,
        )
    library.check(lambda *x: finite(library, P.segment_reduce(op, packed(x), offsets)), rows)
    library.check(lambda *x: P.reduce(op, packed(x)), rows, 1 if library is JAX else 2)


COMMUTATIVE = [name for name in TABLE if name in SHAPES or BY_NAME[name].commutes]


@pytest.mark.parametrize(("library", "name"), library_and_name(COMMUTATIVE, ["add", "mul", "min", "logaddexp"]))
def test_derivatives_by_index(library, name):
    op, first, rows = operator_named(name), arrays_of(name, 4, seed=1), arrays_of(name, 6)
    indices, count = library.array(INDICES), len(first)

    def histogram(*x):
        return P.reduce_by_index(packed(x[:count]), op, indices, packed(x[count:]))

    library.check(histogram, [*first, *rows])
    if library is JAX:
        jax.test_util.check_grads(histogram, tuple(map(jnp.asarray, [*first, *rows])), 1)
    elif name == "mul":
        library.check(histogram, [*arrays_of(name, 4, (2,)), *arrays_of(name, 6, (2,), 1)])


SCANS = {
    TORCH: {
        "add": lambda x: torch.cumsum(x, 0),
        "mul": lambda x: torch.cumprod(x, 0),
        "logaddexp": lambda x: torch.logcumsumexp(x, 0),
        "max": lambda x: torch.cummax(x, 0).values,
        "min": lambda x: torch.cummin(x, 0).values,
    },
    JAX: {
        "add": lambda x: jnp.cumsum(x, 0),
        "mul": lambda x: jnp.cumprod(x, 0),
        "logaddexp": lambda x: jax.lax.cumlogsumexp(x),
        "max": lambda x: jax.lax.cummax(x),
        "min": lambda x: jax.lax.cummin(x),
    },
}


@pytest.mark.parametrize(("library", "name"), library_and_name(SCANS[JAX], ["add", "mul"]))
def test_scans_are_what_the_library_computes(library, name):
    rng = np.random.default_rng(0)
    x, weights = rng.normal(size=(2, 1000 if library is TORCH else 9, 3))
    for transform in (lambda f: f,) if library is TORCH else (lambda f: f, jax.jit):
        ours, theirs = (transform(f) for f in (lambda x: P.scan(name, x), SCANS[library][name]))
        close(library.run(ours, [x]), library.run(theirs, [x]), 1e-9)
        close(library.pull(ours, [x], [weights]), library.pull(theirs, [x], [weights]), 1e-8)
        if library is JAX:
            close(library.push(ours, [x], [weights]), library.push(theirs, [x], [weights]), 1e-9)


BY_INDEX = {
    JAX: {"add": jax.ops.segment_sum, "min": jax.ops.segment_min, "max": jax.ops.segment_max},
    TORCH: {"add": "sum", "mul": "prod", "min": "amin", "max": "amax"},
}


@pytest.mark.parametrize(
    ("library", "name"), [(library, name) for library, names in BY_INDEX.items() for name in names], ids=str
)
def test_folds_by_index_are_what_the_library_computes(library, name):
    rng, theirs = np.random.default_rng(2), BY_INDEX[library][name]
    indices, values, weights = library.array(rng.integers(0, 20, 200)), rng.normal(size=200), rng.normal(size=20)
    into = library.array(np.full(20, NAMED[name].neutral_for(float)))
    other = (
        (lambda x: into.scatter_reduce(0, indices, x, theirs))
        if library is TORCH
        else (lambda x: theirs(x, indices, 20))
    )
    for call in (library.run, lambda f, x: library.pull(f, x, [weights])):
        close(call(lambda x: P.reduce_by_index(into, name, indices, x), [values]), call(other, [values]), 1e-9)


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize(
    "modes",
    [
        ("jacfwd", "jacrev"),
        ("jacrev", "jacfwd"),
        pytest.param(("jacfwd", "jacfwd"), marks=pytest.mark.slow),
        pytest.param(("jacrev", "jacrev"), marks=pytest.mark.slow),
    ],
    ids="-".join,
)
def test_derivatives_of_derivatives(library, modes):
    """Of third order too, with a recurrence whose factor and term are computed from the same numbers."""
    outer, inner = (getattr(library.function, mode) for mode in modes)
    x, sin = library.array([2.0, 0.5, -1.0, 3.0]), library.module.sin

    def ours(x):
        return P.scan(LINEAR, (sin(x), x))[1][-1]

    def theirs(x):
        total = x[0]
        for k in range(1, 4):
            total = total * sin(x[k]) + x[k]
        return total

    close([outer(inner(ours))(x)], [outer(inner(theirs))(x)])
    if library is JAX:
        close([jax.jit(outer(inner(ours)))(x)], [outer(inner(theirs))(x)])
    third = (outer(library.function.grad(lambda x, f=f: inner(f)(x)[1]))(x) for f in (ours, theirs))
    close([next(third)], third, 1e-9)


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
def test_one_result_of_several_is_used(library):
    x = list(map(library.array, arrays_of("linear functions", 3)))
    slope = library.function.grad(lambda a, b: P.scan(LINEAR, (a, b))[1][2], argnums=(0, 1))
    found = (jax.jit(slope) if library is JAX else slope)(*x)
    close(found, library.function.grad(lambda a, b: (b[0] * a[1] + b[1]) * a[2] + b[2], argnums=(0, 1))(*x))


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
def test_the_position_of_a_maximum_has_no_derivative(library):
    x, positions = library.array([1.0, 5, 2, 5]), library.array(np.arange(4, dtype=np.int32))
    largest, position = P.scan(ARGMAX, (x, positions))
    assert largest.tolist() == [1, 5, 5, 5]
    assert position.tolist() == [0, 1, 1, 1]
    assert "int32" in str(position.dtype)
    assert library.pull(lambda x: P.reduce(ARGMAX, (x, positions))[0], [x], [1.0])[0].tolist() == [0, 1, 0, 0]
    tangents = library.push(lambda x: P.scan(ARGMAX, (x, positions)), [x], [np.arange(1.0, 5)])
    assert [part.tolist() for part in tangents] == [[1, 2, 2, 2]]


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_small_floats(library, dtype):
    x = library.module.asarray([0.5, 1.5, 2.0], dtype=getattr(library.module, dtype))
    gradient, results = library.function.grad(lambda x: (P.scan("mul", x)[2], P.scan("mul", x)), has_aux=True)(x)
    assert dtype in str(gradient.dtype)
    assert dtype in str(results.dtype)
    assert gradient.tolist() == [3, 1, 0.75]


@pytest.mark.usefixtures("num_threads")
@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize("op", ["mul", "max", SOFT_OR], ids=str)
def test_mapped_indices(library, op):
    """Mapped or not each by itself, inside and outside of derivatives, twice: what the calls one by one give."""
    rng, f, m = np.random.default_rng(1), library.function, library.module
    into, values, along = (library.array(rng.random(shape)) for shape in ((4, 2), (3, 12, 2), (3, 12, 2)))
    indices, weights = library.array(rng.integers(-2, 6, (3, 12))), library.array(np.linspace(1, 2, 8).reshape(4, 2))

    def value(x, i, y):
        return (P.reduce_by_index(x, op, i, y) * weights).sum() ** 2

    def gradient(i, y):
        return f.grad(value, argnums=(0, 2))(into, i, y)

    def slope(i, y, t):
        return f.jvp(lambda y: value(into, i, y), (y,), (t,))[1]

    def hessian(i, y):
        return f.jacfwd(f.grad(lambda y: value(into, i, y)))(y)

    each = list(zip(indices, values, along))
    close([f.vmap(value, (None, 0, 0))(into, indices, values)], [[value(into, i, y) for i, y, _ in each]])
    close(f.vmap(gradient)(indices, values), (m.stack(part) for part in zip(*(gradient(i, y) for i, y, _ in each))))
    close([f.vmap(slope)(indices, values, along)], [m.stack([slope(*row) for row in each])])
    if library is TORCH:
        close([f.vmap(hessian)(indices, values)], [m.stack([hessian(i, y) for i, y, _ in each])])
    # The mapped axis is the last one, and all indices have the same values.
    found = f.vmap(value, (None, 1, None))(into, indices.T, values[0])
    close([found], [[value(into, i, values[0]) for i in indices]])
    found = f.grad(lambda y: f.vmap(value, (None, 0, 0))(into, indices, y).sum())(values)
    close([found], [m.stack([gradient(i, y)[1] for i, y, _ in each])])
    twice = f.vmap(f.vmap(value, (None, 0, None)), (None, None, 0))(into, indices, values)
    close([twice], [[[value(into, i, y) for i in indices] for y in values]])
    twice = f.vmap(f.vmap(value, (None, 0, 0)), (None, None, 0))(into, indices, m.stack([values, 2 * values]))
    close([twice], [[[value(into, i, scale * y) for i, y, _ in each] for scale in (1, 2)]])


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
def test_mapped_offsets(library):
    f, m = library.function, library.module
    values, offsets = (
        library.array(np.random.default_rng(2).random((3, 5))),
        np.array([[0, 2, 5], [0, 5, 5], [0, 0, 5]]),
    )
    offsets = library.array(offsets)
    for fold in (
        lambda o, x: P.segment_reduce("max", x, o),
        lambda o, x: P.segmented_scan("mul", x, o, reverse=True),
        lambda o, x: f.grad(lambda x: m.exp(P.segmented_scan("logaddexp", x, o, exclusive=True)[1:]).sum())(x),
    ):
        for transform in (lambda f: f,) if library is TORCH else (lambda f: f, jax.jit):
            each = m.stack([fold(o, x) for o, x in zip(offsets, values)])
            close([transform(f.vmap(fold))(offsets, values)], [each])
            each = m.stack([fold(o, values[0]) for o in offsets])
            close([transform(f.vmap(fold, (0, None)))(offsets, values[0])], [each])


# What a fold by index hands its gradient: only where there is one, and the right thing for every way to call it.


@pytest.fixture
def arrays_handed(monkeypatch):
    """How many arrays each forward pass handed to a gradient that was going to be asked for."""
    counts = []
    for owner, name in ((Fold, "apply_keeping"), (element_by_index, "reduce_by_index_keeping")):
        run = getattr(owner, name)

        def counted(*arguments, run=run, owner=owner, **options):
            made = run(*arguments, **options)
            counts.append((owner, len(made[1] or ())))
            return made

        monkeypatch.setattr(owner, name, counted)
    # JAX calls the fold from a program that it has compiled, torch from its tape.
    return lambda library: [n for owner, n in counts if (owner is Fold) == (library is TORCH)]


def buckets_and_rows(library, rows=50, dtype="float64"):
    rng = np.random.default_rng(0)
    made = rng.random(3).astype(dtype), rng.integers(-1, 4, rows), (rng.random(rows) / 4).astype(dtype)
    return [library.array(array) for array in made]


def by_what_is_handed_nothing(op, destination, indices, values, seed):
    fold, structure = Fold("reduce_by_index", op.typed(("float64",))), np.asarray(indices, np.int64)
    operands = [np.asarray(destination), np.asarray(values)]
    return fold.pull(structure, [np.asarray(seed)], operands, fold.apply(structure, operands))


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize("op", [SATURATED, SOFT_OR], ids=["saturated add", "soft or"])
@pytest.mark.parametrize("index_dtype", ["int32", "int64"])
def test_gradients_have_the_bits_of_the_longer_way(library, op, index_dtype, num_threads, arrays_handed):
    destination, indices, values = buckets_and_rows(library, rows=53)
    indices = library.array(np.asarray(indices).astype(index_dtype))
    expected = by_what_is_handed_nothing(op, destination, indices, values, WEIGHTS)
    pulled = library.pull(lambda x, y: P.reduce_by_index(x, op, indices, y), [destination, values], [WEIGHTS])
    handed = {(TORCH, 1): [1], (TORCH, 3): [2], (JAX, 1): [1], (JAX, 3): []}
    assert arrays_handed(library) == handed[library, num_threads]
    for mine, other in zip(pulled, expected, strict=True):
        np.testing.assert_array_equal(mine, other)
    if library is JAX:
        both = jax.jit(jax.grad(lambda x, y: P.reduce_by_index(x, op, indices, y) @ WEIGHTS, argnums=(0, 1)))
        for mine, other in zip(both(destination, values), expected, strict=True):
            np.testing.assert_array_equal(mine, other)
        # The number of threads may be another one when the program runs.
        threads.set_num_threads(4 - num_threads)
        for mine, other in zip(both(destination, values), expected, strict=True):
            np.testing.assert_allclose(mine, other, rtol=1e-12)


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
def test_nothing_is_handed_over_where_no_gradient_is_wanted(library, arrays_handed):
    destination, indices, values = buckets_and_rows(library)
    P.reduce_by_index(destination, SATURATED, indices, values)
    library.function.jvp(lambda y: P.reduce_by_index(destination, "add", indices, y), (values,), (values,))
    # Sums have a rule that reads nothing.
    library.pull(lambda y: P.reduce_by_index(destination, "add", indices, y), [values], [WEIGHTS])
    assert sum(arrays_handed(library)) == 0


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize("modes", list(itertools.product(["jacfwd", "jacrev"], repeat=2)), ids="-".join)
def test_second_derivatives_by_index(library, modes):
    destination, indices, values = buckets_and_rows(library, rows=8)
    numbers = indices.tolist()
    outer, inner = (getattr(library.function, mode) for mode in modes)

    def ours(x, y):
        return (P.reduce_by_index(x, SOFT_OR, indices, y) * library.array(WEIGHTS)).prod()

    def theirs(x, y):
        buckets = list(x)
        for k, bucket in enumerate(numbers):
            if 0 <= bucket < 3:
                buckets[bucket] = buckets[bucket] + y[k] - buckets[bucket] * y[k]
        return (library.module.stack(buckets) * library.array(WEIGHTS)).prod()

    def second(function):
        made = outer(inner(function, argnums=(0, 1)), argnums=(0, 1))
        return jax.tree.leaves((jax.jit(made) if library is JAX else made)(destination, values))

    close(second(ours), second(theirs), 1e-11)


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
def test_a_gradient_for_each_of_many_seeds(library):
    """A second time through the same graph, and all at once."""
    destination, indices, values = buckets_and_rows(library)
    _, pull = library.function.vjp(lambda y: P.reduce_by_index(destination, SOFT_OR, indices, y), values)
    seeds = library.array(np.eye(3))
    one_by_one, again = ([pull(seed)[0] for seed in seeds] for _ in range(2))
    close(again, one_by_one, 0, 0)
    close(library.function.vmap(pull)(seeds)[0], one_by_one, 1e-12)


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_elements_with_positions_and_batch_axes(library, dtype, arrays_handed):
    values = np.random.default_rng(2).random((40, 2, 3))
    into = library.array(np.full((4, 2, 3), -np.inf)), library.array(np.full((4, 2, 3), 99, dtype))
    indices = library.array(np.random.default_rng(3).integers(0, 4, 40))
    positions = library.array(np.broadcast_to(np.arange(40, dtype=dtype)[:, None, None], values.shape))

    def largest(y):
        return P.reduce_by_index(into, ARGMAX, indices, (y, positions))

    found, chosen = library.run(largest, [values])
    np.testing.assert_array_equal(np.take_along_axis(values, chosen, 0), found)
    (gradient,) = library.pull(largest, [values], [np.ones((4, 2, 3))])
    expected = np.zeros_like(values)
    np.put_along_axis(expected, chosen, 1.0, 0)
    np.testing.assert_array_equal(gradient, expected)
    assert max(arrays_handed(library)) > 0


@pytest.mark.parametrize("library", LIBRARIES, ids=repr)
@pytest.mark.parametrize("cut", [False, True])
def test_the_first_of_the_largest_takes_all_under_every_map(library, cut, monkeypatch, arrays_handed):
    threads_before = threads.get_num_threads()
    if cut:
        monkeypatch.setattr(element_cuts, "MIN_CHUNK", 4)
        threads.set_num_threads(3)
    try:
        # Other sizes where rows are cut: plans of equal sizes are the same.
        _winners_under_maps(library, 51 if cut else 50)
    finally:
        threads.set_num_threads(threads_before)
    assert set(arrays_handed(library)) <= {1}


def _winners_under_maps(library, rows):
    rng, f = np.random.default_rng(0), library.function
    destination, values = rng.random(3), np.round(16 * rng.random((4, rows))) / 16
    indices = rng.integers(-1, 4, values.shape)

    def expected(where, y):
        gradient, first = np.zeros(len(y)), np.zeros(3)
        for bucket in range(3):
            members = np.flatnonzero(where == bucket)
            best = members[np.argmax(y[members])]
            target, k = (gradient, best) if y[best] > destination[bucket] else (first, bucket)
            target[k] = WEIGHTS[bucket]
        return first, gradient

    x, i, y = map(library.array, (destination, indices, values))
    slope = f.grad(lambda x, i, y: (P.reduce_by_index(x, "max", i, y) * library.array(WEIGHTS)).sum(), argnums=(0, 2))
    each = [expected(*row) for row in zip(indices, values)]
    assert any(gradient.any() for _, gradient in each)
    for transform in (lambda f: f,) if library is TORCH else (lambda f: f, jax.jit):
        close(transform(f.vmap(slope, (None, 0, 0)))(x, i, y), map(np.array, zip(*each)), 0, 0)
    same = [expected(indices[0], row) for row in values]
    close(f.vmap(slope, (None, None, 0))(x, i[0], y), map(np.array, zip(*same)), 0, 0)
