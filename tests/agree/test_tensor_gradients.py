"""A sum of products has one value and one gradient, whichever door it comes through: Einstein sums, programs, kernels,
`Function`, torch, JAX, and every storage; with NaN, infinities and zeros among the operands and the adjoints.

The reference is the definition. A term is zero where a factor is zero, else the product of its factors; a gradient is
the sum of such terms, of the adjoint and of the other factors.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import scipy.sparse

import derivable as dv

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
BCOO = pytest.importorskip("jax.experimental.sparse").BCOO

SIZES = dict(zip("ijkl", (2, 3, 2, 3)))
VALUES = (0.0, 0.0, 1.0, 2.0, 0.5, 3.0, np.inf, np.nan)
# Of which many sums are zero.
CANCELLING = (0.0, 1.0, -1.0, 1.0, -1.0, 2.0, -2.0, np.inf, np.nan)
# What is the same sum in the language: of operands T0, T1, ...
PROGRAMS = {
    "i,i->": "sum(<i, a> in T0) a * T1(i)",
    "ij,j->i": "sum(<i, r> in T0) { i -> sum(<j, a> in r) a * T1(j) }",
    "ji,j->i": "sum(<j, r> in T0) sum(<i, a> in r) { i -> a * T1(j) }",
    "ij,jk->ik": "sum(<i, r> in T0) { i -> sum(<j, a> in r) sum(<k, b> in T1(j)) { k -> a * b } }",
    "ij,ij->ij": "sum(<i, r> in T0) { i -> sum(<j, a> in r) { j -> a * T1(i, j) } }",
    "i,j->ij": "sum(<i, a> in T0) { i -> sum(<j, b> in T1) { j -> a * b } }",
    "ij,j->ij": "sum(<i, r> in T0) { i -> sum(<j, a> in r) { j -> a * T1(j) } }",
    "ij,j,k->ik": "sum(<i, r> in T0) { i -> sum(<j, a> in r) sum(<k, b> in T2) { k -> a * T1(j) * b } }",
    "ij,jk,kl->il": "sum(<i, r> in T0) { i -> sum(<j, a> in r) sum(<k, b> in T1(j)) sum(<l, c> in T2(k)) "
    "{ l -> a * b * c } }",
}
# Those that have no text of their own here.
SUBSCRIPTS = (*PROGRAMS, "ij->ji", "ij->j", "ii,i->i", "i...,i->...", "ij,kj,l->kil", "ij,i,j->")


def agree(found, expected, what, atol=0.0):
    """Raises AssertionError unless all numbers are equal, NaN to NaN."""
    np.testing.assert_allclose(np.asarray(found), expected, rtol=1e-6, atol=atol, err_msg=what, equal_nan=True)


def test_what_compares_can_fail():
    agree(np.array([np.nan, np.inf, 0.0]), np.array([np.nan, np.inf, 0.0]), "equal")
    for wrong in ([0.0, np.inf, 0.0], [np.nan, -np.inf, 0.0], [np.nan, np.inf, 1e-9], [np.nan, np.inf]):
        with pytest.raises(AssertionError):
            agree(np.array(wrong), np.array([np.nan, np.inf, 0.0]), "unequal")


def of_both_signs(terms, axes, result):
    """Where a sum has infinities of both signs, and no term that is NaN: it is NaN, or infinite if some terms are added
    up before they are multiplied."""
    whole, outer = terms_of(terms, axes, result)
    plus, minus, nan = ((whole == np.inf).any(outer), (whole == -np.inf).any(outer), np.isnan(whole).any(outer))
    return in_order(plus & minus & ~nan, axes, result)


def summed(terms, axes, result):
    """The sum of products of arrays with their axes, by the definition."""
    whole, outer = terms_of(terms, axes, result)
    with np.errstate(invalid="ignore"):
        return in_order(whole.sum(outer), axes, result)


def in_order(found, axes, result):
    """A result whose axes are those of its letters in alphabetical order."""
    kept = [letter for letter in sorted(set().union(*axes, result)) if letter in result]
    return found.transpose([kept.index(letter) for letter in result])


def terms_of(terms, axes, result):
    """(the products [letter, ...], letters in alphabetical order; the axes that are summed)"""
    letters = sorted(set().union(*axes, result))
    product, is_zero = np.ones([1] * len(letters)), np.zeros([1] * len(letters), bool)
    for term, of in zip(terms, axes):
        # The diagonal of letters that come twice.
        index = [np.arange(SIZES[letter]).reshape([-1 if x == letter else 1 for x in letters]) for letter in of]
        spread = np.asarray(term, float)[tuple(index)] if of else np.asarray(term, float)
        is_zero = is_zero | (spread == 0)
        with np.errstate(invalid="ignore"):
            product = product * spread
    whole = np.broadcast_to(np.where(is_zero, 0.0, product), [SIZES[letter] for letter in letters])
    return whole, tuple(place for place, letter in enumerate(letters) if letter not in result)


def axes_of(subscripts):
    left, result = subscripts.replace("...", "j").split("->")
    return left.split(","), result


def by_hand(subscripts, operands, adjoint, summed=summed):
    """(the sum, its gradient by each operand)"""
    axes, result = axes_of(subscripts)
    gradients = []
    for place, of in enumerate(axes):
        others = [*operands[:place], *operands[place + 1 :], adjoint]
        their = [*axes[:place], *axes[place + 1 :], result]
        distinct = "".join(dict.fromkeys(of))
        found = summed([*others, np.ones([SIZES[x] for x in distinct])], [*their, distinct], distinct)
        if distinct != of:
            (letter,) = distinct
            whole = np.zeros([SIZES[letter]] * 2)
            np.fill_diagonal(whole, found)
            found = whole
        gradients.append(found)
    return summed(operands, axes, result), gradients


def drawn(subscripts, seed, is_signed=False):
    """(operands, adjoint), of which few have no number that is special."""
    random = np.random.default_rng([seed, *map(ord, subscripts)])
    axes, result = axes_of(subscripts)
    shapes = [[SIZES[letter] for letter in of] for of in (*axes, result)]
    *operands, adjoint = (random.choice(VALUES, shape) for shape in shapes)
    if is_signed:
        # No sum of some of these numbers is zero.
        *operands, adjoint = (
            random.choice([-1, 1], x.shape) * np.where(np.isfinite(x) & (x != 0), random.uniform(0.3, 3.0, x.shape), x)
            for x in (*operands, adjoint)
        )
    return operands, adjoint if seed % 3 else np.ones_like(adjoint)


def test_the_reference_is_that_of_torch_for_numbers():
    """Of finite numbers, where the rule of zeros says nothing."""
    for subscripts in SUBSCRIPTS:
        operands, adjoint = drawn(subscripts, 1)
        tensors = [torch.from_numpy(np.nan_to_num(x, nan=4.0, posinf=5.0)).requires_grad_() for x in operands]
        seed = torch.tensor(np.nan_to_num(adjoint, nan=4.0, posinf=5.0))
        total = torch.einsum(subscripts, *tensors)
        value, gradients = by_hand(subscripts, [x.detach().numpy() for x in tensors], seed.numpy())
        agree(total.detach(), value, subscripts)
        for mine, other in zip(gradients, torch.autograd.grad(total, tensors, seed)):
            agree(mine, other, subscripts)


# Doors: (subscripts, operands, adjoint) -> (the sum, gradients [operand], None for one that is a constant there)


def by_torch(subscripts, operands, adjoint, call, dtype=None):
    tensors = [torch.tensor(x, dtype=dtype or torch.float64, requires_grad=True) for x in operands]
    found = call(subscripts, *tensors)
    found = found if found.layout == torch.strided else found.to_dense()
    gradients = torch.autograd.grad(found, tensors, torch.tensor(adjoint, dtype=found.dtype))
    return found.detach(), gradients


def by_torch_func(subscripts, operands, adjoint, call):
    found, pulled = torch.func.vjp(lambda *x: call(subscripts, *x), *map(torch.tensor, operands))
    return found, [x.detach() for x in pulled(torch.tensor(adjoint))]


def by_recorded(subscripts, operands, adjoint, call):
    """Gradients that have derivatives themselves go another way."""
    tensors = [torch.tensor(x, requires_grad=True) for x in operands]
    found = call(subscripts, *tensors)
    gradients = torch.autograd.grad(found, tensors, torch.tensor(adjoint, requires_grad=True), create_graph=True)
    return found.detach(), [x.detach() for x in gradients]


def by_jax(subscripts, operands, adjoint, call, jit=False):
    def pulled(seed, *x):
        found, pull = jax.vjp(lambda *x: call(subscripts, *x), *x)
        return found, pull(seed)

    with jax.enable_x64(True):
        arrays = [jax.numpy.asarray(x) for x in (adjoint, *operands)]
        found, gradients = (jax.jit(pulled) if jit else pulled)(*arrays)
        return np.asarray(found), [np.asarray(x) for x in gradients]


def program_of(subscripts):
    text = PROGRAMS.get(subscripts) or text_of(subscripts)
    axes, _ = axes_of(subscripts)
    return dv.tensor.parse(text, {f"T{place}": len(of) for place, of in enumerate(axes)})


def named(operands):
    return {f"T{place}": x for place, x in enumerate(operands)}


def einsum(subscripts, *operands):
    return dv.tensor.einsum(subscripts, *operands)


def gathered(subscripts, *operands):
    return dv.tensor.einsum(subscripts, *operands, backend="torch")


def program(subscripts, *operands):
    return program_of(subscripts)(**named(operands), output="dense")


def kernel(subscripts, *operands):
    return dv.tensor.compile(program_of(subscripts), output="dense" if axes_of(subscripts)[1] else None)(
        **named(operands)
    )


def function(subscripts, *operands, backend=None):
    output = "numpy" if axes_of(subscripts)[1] else None
    return dv.tensor.Function(program_of(subscripts), output=output, backend=backend)(**named(operands))


def gathered_function(subscripts, *operands):
    return function(subscripts, *operands, backend="torch")


def by_vjp(subscripts, operands, adjoint):
    """Programs that are derivatives, of arrays of NumPy."""
    of = program_of(subscripts)
    gradients = []
    for name in named(operands):
        pulled = dv.tensor.vjp(of, name)
        seed = adjoint if np.ndim(adjoint) else float(adjoint)
        gradients.append(pulled(**named(operands), **{list(pulled.inputs)[-1]: seed}, output="dense"))
    return program(subscripts, *operands), gradients


CALLS = {"einsum": einsum, "gathered": gathered, "program": program, "kernel": kernel, "function": function,
         "gathered function": gathered_function}  # fmt: skip
DOORS = {
    **{("torch", name): (by_torch, call) for name, call in CALLS.items()},
    ("float32", "einsum"): (lambda *x: by_torch(*x, torch.float32), einsum),
    ("float32", "function"): (lambda *x: by_torch(*x, torch.float32), function),
    **{("torch.func", name): (by_torch_func, CALLS[name]) for name in ("einsum", "gathered", "function")},
    **{("create_graph", name): (by_recorded, CALLS[name]) for name in ("einsum", "gathered", "function")},
    **{("JAX", name): (by_jax, CALLS[name]) for name in ("einsum", "program", "kernel", "function")},
    **{("jit", name): (lambda *x: by_jax(*x, jit=True), CALLS[name]) for name in ("einsum", "function")},
    ("NumPy", "vjp"): (lambda s, operands, adjoint, _: by_vjp(s, operands, adjoint), None),
}


def check(door, subscripts, seed):
    ask, call = DOORS[door]
    operands, adjoint = drawn(subscripts, seed)
    value, gradients = by_hand(subscripts, operands, adjoint)
    found, their = ask(subscripts, operands, adjoint, call)
    what = f"{subscripts} of {operands} for {adjoint}"
    agree(found, value, what)
    for mine, other in zip(their, gradients, strict=True):
        agree(mine, other, what)


def drawn_subscripts(random, most=4):
    """The subscripts of a sum of one to `most` operands."""
    while True:
        of = ["".join(random.permutation([*"ijkl"])[: random.choice([0, 1, 1, 2, 2, 3])])
              for _ in range(min(most, random.choice([1, 2, 2, 2, 3, 3, 4])))]  # fmt: skip
        letters = sorted(set("".join(of)))
        if len(of) > 1 or of[0]:
            return ",".join(of) + "->" + "".join(random.permutation(letters)[: random.integers(0, 4)])


def text_of(subscripts):
    """What is the same sum in the language: a loop for each letter, in the first operand that has it."""
    axes, result = axes_of(subscripts)
    text, factors, bound = "", [], set()
    for place, of in enumerate(axes):
        factor = f"T{place}"
        for letter in of:
            if letter in bound:
                factor += f"({letter})"
            else:
                text += f"sum(<{letter}, {letter}{place}> in {factor}) "
                factor = f"{letter}{place}"
                bound.add(letter)
        factors.append(factor)
    body = " * ".join(factors)
    for letter in reversed(result):
        body = f"{{ {letter} -> {body} }}"
    return text + body


def check_drawn(door, seed, most=4):
    """Any sum, of numbers of both signs."""
    subscripts = drawn_subscripts(np.random.default_rng(seed), most)
    ask, call = DOORS[door]
    operands, adjoint = drawn(subscripts, seed, is_signed=True)
    value, gradients = by_hand(subscripts, operands, adjoint)
    may_be_infinite, their_may = by_hand(subscripts, operands, adjoint, of_both_signs)
    found, their = ask(subscripts, operands, adjoint, call)
    what = f"{subscripts} of {operands} for {adjoint}"
    for mine, other, may in zip((found, *their), (value, *gradients), (may_be_infinite, *their_may), strict=True):
        mine = np.asarray(mine)
        agree(mine, np.where(may & np.isinf(mine), mine, other), what, atol=1e-5)


def texts_of(door):
    return SUBSCRIPTS if DOORS[door][1] in (einsum, gathered) else tuple(PROGRAMS)


@pytest.mark.parametrize("door", DOORS, ids=" ".join)
def test_dense_operands(door):
    """Each door takes a few of the sums, and all doors together every one."""
    number = list(DOORS).index(door)
    for subscripts in ("ij,j->i", *texts_of(door)[number % 5 :: 5]):
        check(door, subscripts, number)


@pytest.mark.parametrize("door", DOORS, ids=" ".join)
def test_drawn_sums(door):
    check_drawn(door, list(DOORS).index(door), most=2)


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS, ids=" ".join)
def test_more_drawn_sums(door):
    for seed in range(100 * list(DOORS).index(door), 100 * list(DOORS).index(door) + 8):
        check_drawn(door, seed)


@pytest.mark.slow
@pytest.mark.parametrize("door", DOORS, ids=" ".join)
def test_dense_operands_of_every_sum(door):
    for subscripts, seed in itertools.product(texts_of(door), range(8)):
        check(door, subscripts, seed)


def in_python(subscripts, operands):
    """The same sum by a loop over all terms, in Python's floats."""
    axes, result = axes_of(subscripts)
    letters = sorted(set().union(*axes))
    total = np.zeros([SIZES[letter] for letter in result])
    for indices in itertools.product(*(range(SIZES[letter]) for letter in letters)):
        at = dict(zip(letters, indices))
        factors = [float(x[tuple(at[letter] for letter in of)]) for of, x in zip(axes, operands)]
        if 0.0 not in factors:
            total[tuple(at[letter] for letter in result)] += math.prod(factors)
    return total


def test_the_reference_is_a_loop_over_all_terms():
    for seed in range(40):
        subscripts = drawn_subscripts(np.random.default_rng(seed))
        operands, _ = drawn(subscripts, seed, is_signed=True)
        with np.errstate(invalid="ignore"):
            agree(summed(operands, *axes_of(subscripts)), in_python(subscripts, operands), subscripts, atol=1e-9)


@pytest.mark.parametrize("name", CALLS)
def test_numbers_that_cancel_before_they_meet_a_nan(name):
    """The sum of a column is zero, but its terms are there, and each is NaN."""
    nan = torch.tensor([np.nan])
    for column, is_nan in ((torch.tensor([[1.0], [-1.0]]), True), (torch.zeros(2, 1), False)):
        # A `Function` takes dense arrays.
        stored = [scipy.sparse.csr_array(column.numpy()), column.to_sparse()] if "function" not in name else []
        for matrix in (column, column.numpy(), *stored):
            assert np.isnan(float(CALLS[name]("ij,j->", matrix, nan))) == is_nan


def cancelling(subscripts, seed):
    """(operands, adjoint) with many sums that are zero; every third time all operands are finite."""
    random = np.random.default_rng([seed, *map(ord, subscripts)])
    axes, result = axes_of(subscripts)
    values = CANCELLING if seed % 3 else CANCELLING[:-2]
    operands = [random.choice(values, [SIZES[letter] for letter in of]) for of in axes]
    return operands, random.choice(CANCELLING, [SIZES[letter] for letter in result])


def agree_but_for_signs(found, their, subscripts, operands, adjoint, read=lambda place, x: x):
    """Raises AssertionError unless values and gradients are equal; infinities of both signs may add up to any."""
    value, gradients = by_hand(subscripts, operands, adjoint)
    may_be_infinite, their_may = by_hand(subscripts, operands, adjoint, of_both_signs)
    for place, (mine, other, may) in enumerate(
        zip((found, *their), (value, *gradients), (may_be_infinite, *their_may), strict=True), -1
    ):
        mine, other, may = np.asarray(mine), read(place, other), read(place, may)
        what = f"{place} of {subscripts} of {operands} for {adjoint}"
        agree(mine, np.where(may & np.isinf(mine), mine, other), what, atol=1e-5)


CANCELLED = ("ij,j->", "ij,jk->k", "ij,jk,kl->il", "ij,i,j->", "i,jk,k->j", "ij,jk,ik->i", "ij,k,l->kl")


@pytest.mark.parametrize("door", DOORS, ids=" ".join)
def test_numbers_that_cancel(door):
    ask, call = DOORS[door]
    number = list(DOORS).index(door)
    # JAX compiles for seconds.
    for seed in range(number, number + (2 if door[0] in ("JAX", "jit") else 6)):
        subscripts = CANCELLED[seed % len(CANCELLED)]
        operands, adjoint = cancelling(subscripts, seed)
        agree_but_for_signs(*ask(subscripts, operands, adjoint, call), subscripts, operands, adjoint)


@pytest.mark.slow
@pytest.mark.parametrize("door", [door for door in DOORS if door[1] in ("einsum", "gathered")], ids=" ".join)
def test_numbers_that_cancel_in_every_sum(door):
    ask, call = DOORS[door]
    for seed in range(6 if door[0] in ("JAX", "jit") else 60):
        subscripts = drawn_subscripts(np.random.default_rng(seed))
        operands, adjoint = cancelling(subscripts, seed)
        agree_but_for_signs(*ask(subscripts, operands, adjoint, call), subscripts, operands, adjoint)


def test_sums_of_many_tensors_have_second_derivatives():
    """Of z = A B x with the adjoint w: the derivative by A of c times the gradient by x."""
    for seed in range(6):
        (a, b, x), w = cancelling("ij,jk,k->i", seed)
        c = np.random.default_rng(seed).choice(CANCELLING, 2)
        operands, axes = [w, b, c], ["i", "jk", "k"]
        expected, may = summed(operands, axes, "ij"), of_both_signs(operands, axes, "ij")
        first, second, third = (torch.tensor(part, requires_grad=True) for part in (a, b, x))
        total = einsum("ij,jk,k->i", first, second, third)
        (gradient,) = torch.autograd.grad(total, third, torch.tensor(w), create_graph=True)
        answers = [torch.autograd.grad(gradient, first, torch.tensor(c))[0].numpy()]
        if seed < 2:
            with jax.enable_x64(True):
                last, seeds = jax.numpy.asarray(x), (jax.numpy.asarray(w), jax.numpy.asarray(c))

                def by_vector(first, b=b, last=last, seed=seeds[0]):
                    return jax.vjp(lambda y: einsum("ij,jk,k->i", first, jax.numpy.asarray(b), y), last)[1](seed)[0]

                answers.append(np.asarray(jax.vjp(by_vector, jax.numpy.asarray(a))[1](seeds[1])[0]))
        for found in answers:
            what = f"{a}, {b}, {x}, {w}, {c}"
            agree(found, np.where(may & np.isinf(found), found, expected), what, atol=1e-9)


@pytest.mark.parametrize("seed", [1, 2])
def test_many_sums_at_once(seed):
    """By vmap of torch and JAX, and by the one that `torch.autograd` has for itself."""
    subscripts = "ij,jk,kl->il"
    operands, adjoint = cancelling(subscripts, seed)
    twice = [np.stack([np.ones_like(x), x]) for x in operands]

    def call(*x):
        return einsum(subscripts, *x)

    def pulled(*x):
        found, pull = torch.func.vjp(call, *x)
        return found, pull(torch.tensor(adjoint))

    found, their = torch.vmap(pulled)(*map(torch.tensor, twice))
    agree_but_for_signs(found[1].detach(), [x[1].detach() for x in their], subscripts, operands, adjoint)
    leaves = [torch.tensor(x, requires_grad=True) for x in operands]
    found, seeds = call(*leaves), torch.tensor(np.stack([np.ones_like(adjoint), adjoint]))
    their = torch.autograd.grad(found, leaves, seeds, is_grads_batched=True)
    agree_but_for_signs(found.detach(), [x[1] for x in their], subscripts, operands, adjoint)
    if seed == 1:
        with jax.enable_x64(True):

            def pulled_in_jax(*x):
                found, pull = jax.vjp(call, *x)
                return found, pull(jax.numpy.asarray(adjoint))

            found, their = jax.jit(jax.vmap(pulled_in_jax))(*map(jax.numpy.asarray, twice))
            agree_but_for_signs(found[1], [x[1] for x in their], subscripts, operands, adjoint)


def test_second_derivatives():
    """Of z = A x with the adjoint w, the gradient by x is w A; its derivative by A, for the adjoint c, is w c."""
    for seed in range(1, 4):
        (a, x), w = drawn("ij,j->i", seed)
        c = np.random.default_rng(seed).choice(VALUES, 3)
        expected = summed([w, c], ["i", "j"], "ij")
        for name, call in CALLS.items():
            matrix, vector = (torch.tensor(part, requires_grad=True) for part in (a, x))
            (first,) = torch.autograd.grad(call("ij,j->i", matrix, vector), vector, torch.tensor(w), create_graph=True)
            (second,) = torch.autograd.grad(first, matrix, torch.tensor(c))
            agree(second, expected, f"{name}: {w}, {c}")
        with jax.enable_x64(True):
            seeds = jax.numpy.asarray(w), jax.numpy.asarray(c)

            def by_vector(matrix, call, x=x, seeds=seeds):
                return jax.vjp(lambda y: call("ij,j->i", matrix, y), jax.numpy.asarray(x))[1](seeds[0])[0]

            for call in (einsum, function):
                (second,) = jax.vjp(lambda matrix, call=call: by_vector(matrix, call), jax.numpy.asarray(a))[1](
                    seeds[1]
                )
                agree(second, expected, f"JAX: {w}, {c}")


def test_tangents():
    """Of z = A x along (B, y): B x + A y, in forward mode."""
    for seed in range(1, 4):
        (a, x), _ = drawn("ij,j->i", seed)
        (b, y), _ = drawn("ij,j->i", seed + 10)
        expected = summed([b, x], ["ij", "j"], "i") + summed([a, y], ["ij", "j"], "i")
        for name in ("einsum", "gathered", "program", "function"):
            pair = tuple(map(torch.tensor, (a, x))), tuple(map(torch.tensor, (b, y)))
            _, found = torch.func.jvp(lambda *of, name=name: CALLS[name]("ij,j->i", *of), *pair)
            agree(found.detach(), expected, f"{name}: {a}, {x}, {b}, {y}")
        with jax.enable_x64(True):
            pair = tuple(map(jax.numpy.asarray, (a, x))), tuple(map(jax.numpy.asarray, (b, y)))
            for call in (einsum, function):
                _, found = jax.jvp(lambda *of, call=call: call("ij,j->i", *of), *pair)
                agree(found, expected, f"JAX: {a}, {x}, {b}, {y}")


TOTALS = {"i,i->": PROGRAMS["i,i->"], "ij,j->": "sum(<i, r> in T0) sum(<j, a> in r) a * T1(j)",
          "ij,i,j->": "sum(<i, r> in T0) sum(<j, a> in r) a * T1(i) * T2(j)"}  # fmt: skip


@pytest.mark.parametrize("subscripts", TOTALS)
def test_values_and_gradients_of_numbers_at_once(subscripts):
    axes, _ = axes_of(subscripts)
    of = dv.tensor.parse(TOTALS[subscripts], {f"T{place}": len(letters) for place, letters in enumerate(axes)})
    step = dv.tensor.value_and_gradient(of, list(of.inputs))
    one_by_one = [dv.tensor.gradient(of, name) for name in of.inputs]
    for seed in range(6):
        operands, _ = drawn(subscripts, seed)
        value, gradients = by_hand(subscripts, operands, np.ones(()))
        found, their = step(**named(operands))
        agree(found, value, f"{subscripts} of {operands}")
        for mine, single, other in zip(their, one_by_one, gradients, strict=True):
            agree(mine, other, f"{subscripts} of {operands}")
            agree(single(**named(operands), output="dense"), other, f"{subscripts} of {operands}")


@pytest.mark.parametrize("semiring", ["min_plus", "max_plus"])
def test_ties(semiring):
    """The derivative of a shortest or longest way is that of the first of several; what is nothing has none."""
    sign = 1.0 if semiring == "min_plus" else -1.0
    program = program_of("ij,j->i")
    for seed in range(4):
        random = np.random.default_rng(seed)
        a, x, w = sign * random.choice([0.0, 1.0, 2.0, np.inf], (2, 3)), sign * random.choice([0.0, 1.0], 3), [2.0, 3.0]
        ways = sign * (a + x)
        value, first = sign * ways.min(1), ways.argmin(1)
        of_a, of_x = np.zeros((2, 3)), np.zeros(3)
        for row, column in enumerate(first):
            if np.isfinite(value[row]):
                of_a[row, column] = w[row]
                of_x[column] += w[row]
        # A sparse matrix leaves out what is nothing.
        held = np.stack(np.nonzero(np.isfinite(a)))
        for name, is_sparse in itertools.product(("einsum", "gathered", "program", "kernel"), (False, True)):
            backend = "torch" if name == "gathered" else None
            leaf = torch.tensor(a[tuple(held)] if is_sparse else a, requires_grad=True)
            vector = torch.tensor(x, requires_grad=True)
            matrix = dv.tensor.Coordinates((2, 3), held, leaf) if is_sparse else leaf
            if name in ("einsum", "gathered"):
                found = dv.tensor.einsum("ij,j->i", matrix, vector, semiring=semiring, backend=backend)
            elif name == "program":
                found = program(T0=matrix, T1=vector, semiring=semiring)
            else:
                found = dv.tensor.compile(program, semiring=semiring)(T0=matrix, T1=vector)
            by_a, by_x = torch.autograd.grad(found, (leaf, vector), torch.tensor(w, dtype=torch.float64))
            what = f"{name}, sparse: {is_sparse}, {a}, {x}"
            agree(found.detach(), value, what)
            agree(by_a, of_a[tuple(held)] if is_sparse else of_a, what)
            agree(by_x, of_x, what)


# Storages: (array, mask of what is stored) -> (the operand, its leaf, what reads a gradient at the stored places)


def torch_layout(layout):
    def stored(array, mask):
        whole = torch.tensor(np.where(mask, 7.0, 0.0))
        leaf = whole.to_sparse(layout=layout, **({"blocksize": (1, 1)} if layout == torch.sparse_bsr else {}))
        leaf = leaf.coalesce() if layout == torch.sparse_coo else leaf
        if layout in (torch.sparse_csr, torch.sparse_coo):
            leaf.values().copy_(torch.tensor(array[mask]))
        elif layout == torch.sparse_csc:
            leaf.values().copy_(torch.tensor(array.T[mask.T]))
        else:
            leaf.values().copy_(torch.tensor(array[mask]).reshape(-1, 1, 1))
        leaf.requires_grad_()
        return leaf, leaf, lambda x: x.to_dense().numpy()[mask]

    return stored


def coordinates(array, mask):
    leaf = torch.tensor(array[mask], requires_grad=True)
    return dv.tensor.Coordinates(array.shape, np.stack(np.nonzero(mask)), leaf), leaf, lambda x: x.numpy()


def built(array, mask):
    """A tensor that torch's constructor makes of values."""
    leaf = torch.tensor(array[mask], requires_grad=True)
    return torch.sparse_coo_tensor(np.stack(np.nonzero(mask)), leaf, array.shape), leaf, lambda x: x.numpy()


def constant(form):
    return lambda array, mask: (getattr(scipy.sparse, form)(np.where(mask, array, 0.0)), None, None)


STORAGES = {
    "coo": torch_layout(torch.sparse_coo),
    "csr": torch_layout(torch.sparse_csr),
    "csc": torch_layout(torch.sparse_csc),
    "bsr": torch_layout(torch.sparse_bsr),
    "coordinates": coordinates,
    "built": built,
    "scipy csr": constant("csr_array"),
    "scipy csc": constant("csc_array"),
}
MATRICES = ("ij,j->i", "ji,j->i", "ij,jk->ik", "ij,ij->ij", "ij,j->ij", "ij,j,k->ik", "ij,jk,kl->il")


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("call", [einsum, gathered, program])
def test_stored_operands(storage, call):
    for subscripts, seed in zip(MATRICES, range(1, 8)):
        operands, adjoint = drawn(subscripts, seed)
        # Some zeros are stored, and everything else that is not one.
        mask = (operands[0] != 0) | (np.random.default_rng(seed).random(operands[0].shape) < 0.5)
        value, gradients = by_hand(subscripts, operands, adjoint)
        first, leaf, read = STORAGES[storage](operands[0], mask)
        others = [torch.tensor(x, requires_grad=True) for x in operands[1:]]
        found = call(subscripts, first, *others)
        found = found if found.layout == torch.strided else found.to_dense()
        what = f"{subscripts} of {operands} for {adjoint}"
        agree(found.detach(), value, what)
        leaves = others if leaf is None else [leaf, *others]
        their = list(torch.autograd.grad(found, leaves, torch.tensor(adjoint)))
        if leaf is not None:
            agree(read(their.pop(0)), gradients[0][mask], what)
        for mine, other in zip(their, gradients[1:], strict=True):
            agree(mine, other, what)


@pytest.mark.parametrize("storage", STORAGES)
def test_stored_numbers_that_cancel(storage):
    for seed in range(1, 8):
        subscripts = ("ij,j->", "ij,jk->k", "ij,jk,kl->il", "ij,i,j->", "ij,jk,ik->i", "ij,k,l->kl", "ij,j,j->i")[
            seed - 1
        ]
        operands, adjoint = cancelling(subscripts, seed)
        mask = (operands[0] != 0) | (np.random.default_rng(seed).random(operands[0].shape) < 0.5)
        first, leaf, read = STORAGES[storage](operands[0], mask)
        others = [torch.tensor(x, requires_grad=True) for x in operands[1:]]
        found = einsum(subscripts, first, *others)
        found = found if found.layout == torch.strided else found.to_dense()
        leaves = others if leaf is None else [leaf, *others]
        their = list(torch.autograd.grad(found, leaves, torch.tensor(adjoint)))
        if leaf is None:
            their.insert(0, torch.tensor(by_hand(subscripts, operands, adjoint)[1][0][mask]))
        else:
            their[0] = torch.tensor(read(their[0]))
        agree_but_for_signs(
            found.detach(), their, subscripts, operands, adjoint, lambda k, x, mask=mask: x if k else x[mask]
        )


def bcoo(array, mask, random):
    """(data, what makes a BCOO of data, what reads a gradient at the stored places): entries in any order, padded."""
    places = np.stack(np.nonzero(mask), 1)
    order = random.permutation(len(places))
    indices = np.concatenate([places[order], np.full((2, array.ndim), array.shape)])
    kept = jax.numpy.asarray(indices)
    data = jax.numpy.asarray(np.append(array[mask][order], [0.0, 0.0]))

    def read(gradient):
        found = np.empty(len(order))
        found[order] = gradient[: len(order)]
        assert not np.asarray(gradient)[len(order) :].any()
        return found

    return data, lambda data: BCOO((data, kept), shape=array.shape), read


@pytest.mark.parametrize("jit", [False, True], ids=["at once", "jit"])
@pytest.mark.parametrize("call", [einsum, program, kernel])
def test_bcoo_operands(call, jit):
    with jax.enable_x64(True):
        first = [einsum, program, kernel].index(call)
        for subscripts, seed in list(zip(MATRICES, range(1, 8)))[first :: 5 if jit else 3]:
            operands, adjoint = drawn(subscripts, seed)
            random = np.random.default_rng(seed)
            mask = (operands[0] != 0) | (random.random(operands[0].shape) < 0.5)
            value, gradients = by_hand(subscripts, operands, adjoint)
            data, build, read = bcoo(operands[0], mask, random)

            def summed_up(data, *others, subscripts=subscripts, build=build):
                found = call(subscripts, build(data), *others)
                return found.todense() if hasattr(found, "todense") else found

            def pulled(seed, *operands, summed_up=summed_up):
                found, pull = jax.vjp(summed_up, *operands)
                return found, pull(seed)

            others = [jax.numpy.asarray(x) for x in operands[1:]]
            found, their = (jax.jit(pulled) if jit else pulled)(jax.numpy.asarray(adjoint), data, *others)
            what = f"{subscripts} of {operands} for {adjoint}"
            agree(found, value, what)
            agree(read(their[0]), gradients[0][mask], what)
            for mine, other in zip(their[1:], gradients[1:], strict=True):
                agree(mine, other, what)
