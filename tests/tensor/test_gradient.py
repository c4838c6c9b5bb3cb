"""Derivatives: all modes, against the complex step, finite differences, and torch on dense arrays."""

import dataclasses
import itertools
import math

import numpy as np
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from derivable.algebra import semirings
from derivable.core.diagnostics import BindingError, DomainError, TypeMismatchError, UnsupportedError
from derivable.tensor.analysis.axes import size_inputs
from derivable.tensor.derivative.derivative import MODES, gradient, hessian, jacobian, jvp, vjp
from derivable.tensor.language import nodes as t
from derivable.tensor.language.interpret import NOTHING, _Run, interpret
from derivable.tensor.language.program import Program
from derivable.tensor.language.syntax import parse
from derivable.tensor.language.types import INT, REAL, product, tensor
from derivable.tensor.values.values import Coordinates
from drawn import examples
from tensor.random_programs import INPUTS, SIZE, inputs, is_same, programs, tensors

REALS = semirings.get("real")
SMOOTH = ("sin", "tanh", "sigmoid", "cos")
# No index reaches SIZE.
BELOW = dict.fromkeys(size_inputs(INPUTS), SIZE)
STEP = 1e-30


class _Moved(_Run):
    """Guards look at numbers as they are before they are moved by a complex step, whose square is real."""

    def is_nonzero(self, value):
        return abs(value.real) > STEP if isinstance(value, complex) else super().is_nonzero(value)


def run(program, values, semiring=REALS):
    return _Moved(semiring, True).value(program.guarded(semiring).node, {**BELOW, **values})


def entry(value, keys):
    for key in keys:
        value = NOTHING if value is NOTHING else value.get(key, NOTHING)
    return 0.0 if value is NOTHING else value


def entries(value, order):
    """{keys: number} of a tensor of that order."""
    if value is NOTHING or value == {}:
        return {}
    if order == 0:
        return {(): value}
    return {(key, *keys): x for key, row in value.items() for keys, x in entries(row, order - 1).items()}


def nested(flat):
    found = {}
    for keys, value in flat.items():
        if not keys:
            return value
        row = found
        for key in keys[:-1]:
            row = row.setdefault(key, {})
        row[keys[-1]] = value
    return found


def dense(array):
    """Every entry, also those that are zero."""
    return nested({key: float(x) for key, x in np.ndenumerate(array)})


def filled(value, order):
    """With an entry at every index, zero where there was none."""
    return nested({keys: entry(value, keys) for keys in itertools.product(range(SIZE), repeat=order)})


def expected_gradient(program, values, wrt, at=None):
    """By the complex step, {keys of the result + keys of the variable: number}, at the entries of the variable."""
    order = program.inputs[wrt].order
    flat = entries(values[wrt], order)
    found = {}
    for keys in flat if at is None else at:
        moved = nested({**flat, keys: flat[keys] + STEP * 1j})
        result = run(program, {**values, wrt: moved})
        for place, value in entries(result, program.type.order).items():
            found[(*place, *keys)] = value.imag / STEP if isinstance(value, complex) else 0.0
    return nested({keys: value for keys, value in found.items() if value}) if found else NOTHING


def assert_close(found, expected):
    assert is_same(found, expected, keeps_zeros=False), f"{found}\n{expected}"


def drawn(data, functions=SMOOTH, order=None):
    node = data.draw(programs(order=order, functions=functions, is_bounded=True))
    values = data.draw(inputs(is_bounded=True))
    return Program(node, INPUTS), values


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrt", ["s", "X", "A"])
@examples(15, 40, data=st.data())
def test_own_gradients_are_those_of_the_complex_step(mode, wrt, data):
    program, values = drawn(data)
    found = gradient(program, wrt, mode, "own")
    assert found.type == product(program.type, program.inputs[wrt])
    assert_close(run(found, values), expected_gradient(program, values, wrt))


# By `A` and `X`, at rows and numbers that are stored and zero: a sum takes the row or the number itself, which has a
# derivative there, or something else of it, so that it leaves it out and has none.
STORED = {"X": {0: 1.0, 1: 0.0}, "A": {1: {2: 0.0}, 2: {2: -1.25}}}
AT_STORED_ZEROS = {
    "sum(<x, k> in A) k": {2: {1: {2: 1.0}, 2: {2: 1.0}}},
    "sum(<x, k> in A) A(x)": {2: {1: {2: 1.0}, 2: {2: 1.0}}},
    "sum(<x, _> in A) { x -> A(x) }": {1: {2: {1: {2: 1.0}}}, 2: {2: {2: {2: 1.0}}}},
    "let B = A in sum(<x, k> in B) sum(<j, a> in A(x)) { j -> a }": {2: {1: {2: 1.0}, 2: {2: 1.0}}},
    "sum(<x, k> in A) sum(<j, a> in k) (exp(A(x)(j)) - 1.0)": {1: {2: 1.0}, 2: {2: math.exp(-1.25)}},
    "sum(<i, a> in X) (exp(X(i)) - 1.0)": {0: math.e, 1: 1.0},
    "sum(<i, a> in X) exp(X(i))": {0: math.e},
    "sum(<x, k> in A) exp(sum(<j, a> in k) a)": {2: {2: math.exp(-1.25)}},
    "sum(<x, k> in A) { x -> exp(sum(<j, a> in k) a) }": {2: {2: {2: math.exp(-1.25)}}},
    "sum(<x, k> in A) (1.0 + sum(<j, a> in k) a)": {2: {2: 1.0}},
    "sum(<i, v> in X * X(1)) X(0)": {},
    "sum(<x, k> in A) { x -> { x -> 1.0 } + k }": {2: {2: {2: {2: 1.0}}}},
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("text", AT_STORED_ZEROS)
@pytest.mark.parametrize("passes", [None, dict.fromkeys(("anf", "sparsity", "products", "fusion", "gathering"), False)])
def test_own_gradients_at_zeros_that_are_stored(text, mode, passes):
    wrt = "X" if "X" in text else "A"
    program = parse(text, {wrt: INPUTS[wrt]})
    found, expected = gradient(program, wrt, mode, "own", passes=passes), AT_STORED_ZEROS[text]
    assert_close(run(found, STORED), expected)
    assert_close(expected_gradient(program, STORED, wrt), expected)
    flat, order = entries(STORED[wrt], INPUTS[wrt].order), found.type.order
    stored = Coordinates.of((3,) * INPUTS[wrt].order, list(zip(*flat)), list(flat.values()))
    called = found(**{wrt: stored}, output="dict", shape=(3,) * order)
    assert_close(called, expected)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("wrt", ["X", "A"])
@examples(15, 40, data=st.data())
def test_full_gradients_are_those_at_stored_zeros(mode, wrt, data):
    program, values = drawn(data)
    try:
        found = gradient(program, wrt, mode)
    except UnsupportedError:
        assume(False)
    order = INPUTS[wrt].order
    whole = {**values, wrt: filled(values[wrt], order)}
    expected = expected_gradient(program, whole, wrt, itertools.product(range(SIZE), repeat=order))
    assert_close(run(found, values), expected)


@pytest.mark.parametrize("wrt", ["s", "X", "A"])
@examples(15, 40, data=st.data())
def test_products_with_the_derivative(wrt, data):
    program, values = drawn(data)
    order, n = INPUTS[wrt].order, program.type.order
    derivative = entries(expected_gradient(program, values, wrt), n + order)
    direction = {keys: data.draw(st.integers(-4, 4)) / 2 for keys in entries(values[wrt], order)}
    adjoint = data.draw(tensors(n))
    forward, backward = {}, {}
    for keys, slope in derivative.items():
        out, at = keys[:n], keys[n:]
        forward[out] = forward.get(out, 0.0) + slope * direction[at]
        backward[at] = backward.get(at, 0.0) + slope * entry(adjoint, out)
    along = jvp(program, wrt, "own")
    assert list(along.inputs)[-1] == f"{wrt}_dot"
    assert along.type == program.type
    assert_close(run(along, {**values, f"{wrt}_dot": nested(direction)}), nested(forward) or NOTHING)
    back = vjp(program, wrt, "own")
    assert list(back.inputs)[-1] == "adjoint"
    assert back.type == program.inputs[wrt]
    assert_close(run(back, {**values, "adjoint": adjoint}), nested(backward) or NOTHING)


@pytest.mark.parametrize("wrt", ["s", "X", "A"])
@examples(12, 30, data=st.data())
def test_hessians_are_derivatives_of_gradients(wrt, data):
    program, values = drawn(data, order=0)
    first = gradient(program, wrt, pattern="own")
    assert_close(run(hessian(program, wrt, "own"), values), expected_gradient(first, values, wrt))


X, Y, A, B, s = (t.Var(name) for name in ("X", "Y", "A", "B", "s"))
i, j, k, a, b, r = (t.Var(name) for name in "ijkabr")
SMVM = t.Sum("i", "r", A, t.Sum("j", "a", r, t.Multiply(a, t.Lookup(X, j))))
SMMM = t.Sum("i", "r", A, t.Sum("k", "a", r, t.Sum("j", "b", t.Lookup(B, k), t.Multiply(a, b))))
BATAX = t.Sum(
    "i",
    "r",
    A,
    t.Sum(
        "j",
        "a",
        r,
        t.Sum("k", "b", r, t.Singleton(j, t.Multiply(t.Multiply(t.Multiply(s, a), b), t.Lookup(X, k)))),
    ),
)
KERNELS = {
    "BATAx": (BATAX, "X", lambda s, A, X: s * A.T @ A @ X),
    "SMMM": (SMMM, "B", lambda A, B: (A @ B).sum()),
    "SMVM": (SMVM, "X", lambda A, X: (A @ X).sum()),
    "VVA": (t.Add(X, Y), "X", lambda X, Y: X + Y),
    "VVD": (t.Sum("i", "a", X, t.Multiply(a, t.Lookup(Y, i))), "X", lambda X, Y: X @ Y),
    "VSM": (t.Multiply(t.Multiply(X, s), s), "s", lambda X, s: X * s * s),
}
# As in the paper, but for names, and that nothing is asked of the pattern of a dense variable.
GRADIENTS = {
    "BATAx": "sum(<_, r> in A) sum(<j, a> in r) sum(<k, b> in r) { j -> { k -> s * a * b } }",
    "SMMM": "sum(<_, r> in A) sum(<k, a> in r) sum(<_, i> in (0:B_size_1)) { k -> { i -> a } }",
    "SMVM": "sum(<_, r> in A) r",
    "VVA": "sum(<_, i> in (0:X_size_0)) { unique(i) -> { i -> one } }",
    "VVD": "Y",
    "VSM": "sum(<i, a> in X) { i -> a * s + a * s }",
}
TYPES = {"s": REAL, "A": tensor(2), "B": tensor(2), "X": tensor(1), "Y": tensor(1)}


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_against_torch(kernel):
    torch = pytest.importorskip("torch")
    node, wrt, plain = KERNELS[kernel]
    names = plain.__code__.co_varnames
    program = Program(node, {name: TYPES[name] for name in names})
    rng = np.random.default_rng(0)
    shapes = {"A": (4, 3), "B": (3, 5), "X": 3, "Y": 3, "s": ()}
    values = {name: rng.normal(size=shapes[name]) * (rng.random(shapes[name]) < 0.6) for name in names}
    values["s"] = np.float64(0.7)
    arguments = [torch.tensor(values[name]) for name in names]
    place = names.index(wrt)

    def of_variable(variable):
        return plain(*arguments[:place], variable, *arguments[place + 1 :])

    expected = torch.autograd.functional.jacobian(of_variable, arguments[place]).numpy()
    sizes = {name: shapes[name[0]][int(name[-1])] for name in ("A_size_0", "A_size_1", "B_size_0", "B_size_1")}
    sparse = {name: nested({key: float(x) for key, x in np.ndenumerate(values[name]) if x}) for name in names}
    given = {**sizes, "X_size_0": 3, "Y_size_0": 3, **sparse}
    assert str(gradient(program, wrt)) == GRADIENTS[kernel]
    for mode, pattern in itertools.product(MODES, ("full", "own")):
        found = interpret(gradient(program, wrt, mode, pattern).node, given, REALS)
        mask = np.ones(expected.shape) if pattern == "full" else np.ones(expected.shape) * (values[wrt] != 0)
        assert_close(found, nested({key: float(x) for key, x in np.ndenumerate(expected * mask) if x}))
    adjoint = rng.normal(size=expected.shape[: program.type.order])
    found = interpret(
        vjp(program, wrt).node,
        {**given, "adjoint": dense(adjoint)},
        REALS,
    )
    back = np.tensordot(adjoint, expected, program.type.order)
    assert_close(found, dense(back))


def test_finite_differences():
    """exp(A X) X, where X is used twice and nonlinearly."""
    inner = t.Sum("j", "a", r, t.Multiply(a, t.Lookup(X, j)))
    node = t.Sum("i", "r", A, t.Multiply(t.Apply("exp", (inner,)), t.Lookup(X, i)))
    program = Program(node, {"A": tensor(2), "X": tensor(1)})
    values = {"A": {0: {0: 0.5, 2: -1.0}, 2: {1: 0.25, 2: 0.5}}, "X": {0: 0.3, 1: -0.2, 2: 0.9}}
    found = run(gradient(program, "X"), values)
    for key, value in values["X"].items():
        high, low = (run(program, {**values, "X": {**values["X"], key: value + h}}) for h in (1e-6, -1e-6))
        assert found[key] == pytest.approx((high - low) / 2e-6, rel=1e-8)


def test_a_lookup_that_does_not_decide_bounds_nothing():
    node = t.Sum("i", "a", X, t.Multiply(a, t.Add(t.Number(1.0), t.Lookup(Y, i))))
    program = Program(node, {"X": tensor(1), "Y": tensor(1)})
    values = {"X": {1: 5.0}, "Y": {0: 0.5, 1: 2.0}}
    for mode in MODES:
        assert run(gradient(program, "X", mode), values) == {0: 1.5, 1: 3.0, 2: 1.0}
        assert run(gradient(program, "X", mode, "own"), values) == {1: 3.0}


@pytest.mark.parametrize(("n", "slope"), [(0, 4.0), (1, 3.0)])
def test_a_choice_has_the_derivative_of_what_is_chosen(n, slope):
    is_zero = t.Apply("equal", (t.Var("n"), t.Number(0)))
    node = t.Apply("where", (is_zero, t.Multiply(s, s), t.Multiply(t.Number(3.0), s)))
    program = Program(node, {"s": REAL, "n": INT})
    for mode in MODES:
        assert run(gradient(program, "s", mode), {"s": 2.0, "n": n}) == slope


def _counted():
    count = [0]

    def plus(a, b):
        count[0] += 1
        return a + b

    def times(a, b):
        count[0] += 1
        return a * b

    return count, dataclasses.replace(REALS, name="counted", plus=plus, times=times)


def test_reverse_costs_a_constant_times_the_program():
    """Layers tanh(A h) with h bound once and used often: no loop is run again for what it already gave."""

    def layer(h):
        sums = t.Sum("j", "a", r, t.Multiply(a, t.Lookup(h, j)))
        return t.Sum("i", "r", A, t.Singleton(i, t.Apply("tanh", (sums,))))

    node = t.Sum("i", "a", t.Var("h3"), t.Multiply(a, a))
    for name, before in (("h3", t.Var("h2")), ("h2", t.Var("h1")), ("h1", X)):
        node = t.Let(name, layer(before), node)
    program = Program(node, {"A": tensor(2), "X": tensor(1)})
    for wrt in ("X", "A"):
        reverse, ratios = gradient(program, wrt, "reverse", "own"), []
        for size in (4, 12):
            rng = np.random.default_rng(size)
            values = {
                "A": {
                    p: {q: float(x) for q, x in enumerate(row)} for p, row in enumerate(rng.normal(size=(size, size)))
                },
                "X": {p: float(x) for p, x in enumerate(rng.normal(size=size))},
            }
            costs = []
            for each in (program, reverse):
                count, semiring = _counted()
                run(each, values, semiring)
                costs.append(count[0])
            ratios.append(costs[1] / costs[0])
        assert ratios[1] < 5
        assert ratios[1] < 1.2 * ratios[0]


def test_repeated_products_stay_small():
    node = t.Lookup(X, t.Number(0))
    for _ in range(30):
        node = t.Let("x", node, t.Multiply(t.Var("x"), t.Var("x")))
    program = Program(node, {"X": tensor(1)})
    for mode in MODES:
        found = gradient(program, "X", mode, "own")
        assert len(list(t.walk(found.node))) < 1000
        assert run(found, {"X": {0: 1.0}}) == {0: 2.0**30}


def test_derivatives_in_the_logarithmic_semiring():
    """The formal derivative of weights that are logarithms is the logarithm of the derivative."""
    program = Program(BATAX, {name: TYPES[name] for name in ("s", "A", "X")})
    values = {"s": 0.5, "A": {0: {0: 2.0, 2: 0.25}, 1: {2: 3.0}}, "X": {0: 1.5, 2: 0.75}}
    logs = {name: _mapped(math.log, value) for name, value in values.items()}
    expected = run(gradient(program, "A", pattern="own"), values)
    found = run(gradient(program, "A", pattern="own", semiring="log", formal=True), logs, semirings.get("log"))
    assert_close(_mapped(math.exp, found), expected)


def _mapped(function, value):
    return {key: _mapped(function, row) for key, row in value.items()} if isinstance(value, dict) else function(value)


def test_derivatives_in_the_tropical_semiring_are_the_best_completions():
    program = Program(SMVM, {"A": tensor(2), "X": tensor(1)})
    graph = {0: {1: 2.0, 2: 7.0}, 1: {2: 3.0}}
    found = run(
        gradient(program, "X", semiring="min_plus", formal=True),
        {"A": graph, "X": {1: 0.0, 2: 1.0}},
        semirings.get("min_plus"),
    )
    assert found == {1: 2.0, 2: 3.0}
    with pytest.raises(UnsupportedError, match=r"`exp.*real numbers only"):
        gradient(Program(t.Apply("exp", (s,)), {"s": REAL}), "s", semiring="min_plus", formal=True)


def test_functions_in_another_semiring_are_allowed_where_nothing_is_differentiated():
    node = t.Multiply(t.Lookup(X, t.Number(0)), t.Apply("exp", (s,)))
    found = gradient(Program(node, {"s": REAL, "X": tensor(1)}), "X", semiring="min_plus", formal=True)
    assert str(found) == "{ 0 -> exp(s) }"


def test_errors():
    program = Program(SMVM, {"A": tensor(2), "X": tensor(1), "n": INT})
    with pytest.raises(BindingError, match="no input `x`"):
        gradient(program, "x")
    with pytest.raises(TypeMismatchError, match="`n` is int"):
        gradient(program, "n")
    with pytest.raises(DomainError, match=r"no mode 'revers'[\s\S]*did you mean `reverse`"):
        gradient(program, "X", "revers")
    with pytest.raises(DomainError, match="no pattern 'mine'"):
        gradient(program, "X", pattern="mine")
    with pytest.raises(TypeMismatchError, match="the result of the program is bool"):
        gradient(Program(t.Apply("less", (s, s)), {"s": REAL}), "s")
    with pytest.raises(TypeMismatchError, match="a Hessian is of a scalar"):
        hessian(Program(t.Add(X, Y), {"X": tensor(1), "Y": tensor(1)}), "X")
    shifted = t.Sum("i", "a", X, t.Singleton(t.Apply("add", (i, i)), a))
    twice = t.Let("y", shifted, t.Sum("i", "a", t.Var("y"), t.Multiply(a, a)))
    with pytest.raises(UnsupportedError, match="no known extent"):
        gradient(Program(twice, {"X": tensor(1)}), "X")
    with pytest.raises(BindingError, match="`X_size_0` has the name of a size, and is real"):
        gradient(Program(SMVM, {"A": tensor(2), "X": tensor(1), "X_size_0": REAL}), "X")
    assert jacobian(program, "X") == gradient(program, "X")


def test_loops_over_entries_that_stay_are_over_entries():
    torch = pytest.importorskip("torch")
    # A softmax over each row has the entries of the row, whatever the numbers are.
    softmax = parse(
        "sum(<i, r> in A) let e = sum(<j, _> in r) { j -> exp(X(j)) } in let z = sum(<_, v> in e) v in "
        "{ i -> sum(<j, v> in e) { j -> v / z } }",
        {"A": tensor(2), "X": tensor(1)},
    )
    found = vjp(softmax, "X")
    assert not any(isinstance(part, t.Range) for part in t.walk(found.node)), str(found)
    rng = np.random.default_rng(0)
    held, x, adjoint = rng.random((4, 3)) < 0.7, rng.normal(size=3), rng.normal(size=(4, 3))
    dense_x = torch.tensor(x, requires_grad=True)
    rows = torch.where(torch.tensor(held), dense_x, -torch.inf)[torch.tensor(held.any(1))]
    (torch.softmax(rows, 1) * torch.tensor(adjoint)[torch.tensor(held.any(1))]).sum().backward()
    given_ = {
        "A": nested(dict.fromkeys(map(tuple, np.argwhere(held).tolist()), 1.0)),
        "X": dense(x),
        "adjoint": dense(adjoint),
    }
    assert_close(run(found, given_), dense(dense_x.grad.numpy()))
