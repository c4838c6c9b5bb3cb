"""The laws that the records of all models state, on vectors of every distribution."""

import dataclasses
import itertools
import math
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.core.diagnostics import DerivableWarning
from derivable.vsa import models
from derivable.vsa.laws import violations

KINDS = [(name, kind) for name in models.names() for kind in models.get(name).samplers]
# The dtypes that laws are checked in, to rounding.
PRECISE = {
    "block": torch.float64,
    "hrr": torch.float64,
    "fhrr": torch.complex128,
    "map": torch.float64,
    "bsc": torch.bool,
}
seeds = st.integers(0, 2**31)
law = settings(deadline=None, max_examples=6)


def drawn(name, kind, seed, count=3, size=24, dtype=None):
    """Vectors [count, *vector], `count` separate ones."""
    shape = (2, size) if models.get(name).rank == 2 else (size,)
    dtype = PRECISE[name] if dtype is None else dtype
    return dv.vsa.random(count, *shape, distribution=kind, generator=seed, dtype=dtype, model=name).unbind(0)


def same(a, b):
    return torch.equal(a, b) if a.dtype == torch.bool else torch.allclose(a, b, atol=1e-9)


@pytest.mark.parametrize(("name", "kind"), KINDS)
@law
@given(seeds, st.sampled_from([1, 2, 3, 8, 15]))
def test_binding(name, kind, seed, size):
    a, b, c = drawn(name, kind, seed, size=size)
    bind, options = dv.vsa.bind, {"model": name}
    assert same(bind(a, b, **options), bind(b, a, **options))
    assert same(bind(bind(a, b, **options), c, **options), bind(a, bind(b, c, **options), **options))
    assert same(bind(a, dv.vsa.identity(*a.shape, dtype=a.dtype, **options), **options), a)
    assert same(dv.vsa.unbind(b, a, **options), bind(b, dv.vsa.inverse(a, **options), **options))
    # Applied to a bundle, ties of bits included, and to weighted ones.
    together = torch.stack([a, b, c, a])
    for weights in (None, torch.tensor([0.5, 2.0, 1.0, 0.25], dtype=torch.float64)):
        bound = bind(c, dv.vsa.bundle(together, weights=weights, **options), **options)
        assert same(bound, dv.vsa.bundle(bind(c, together, **options), weights=weights, **options))


@pytest.mark.parametrize(("name", "kind"), KINDS)
@law
@given(seeds)
def test_unbinding(name, kind, seed):
    a, b, _ = drawn(name, kind, seed)
    found = dv.vsa.unbind(dv.vsa.bind(a, b, model=name), a, model=name)
    if kind in models.get(name).exact:
        assert same(found, b)
        return
    # The stated bound, block by block.
    spectrum = torch.fft.fft(a).abs() ** 2
    bound = (spectrum - 1).abs().amax(-1) * b.norm(dim=-1)
    assert ((found - b).norm(dim=-1) <= bound + 1e-9).all()


@pytest.mark.parametrize(("name", "kind"), [pair for pair in KINDS if pair[1] != "mass"])
def test_unbinding_finds_what_was_bound(name, kind):
    """Of inexact ones too, at a usual size: the similarity that is lost is 1 - 1 / sqrt(2) of normal vectors."""
    a, b, c = drawn(name, kind, 0, size=1024)
    found = dv.vsa.unbind(dv.vsa.bind(a, b, model=name), a, model=name)
    like_b, like_c = (dv.vsa.similarity(found, other, model=name) for other in (b, c))
    assert like_b > 0.6
    assert like_b > like_c + 0.5


@pytest.mark.parametrize(("name", "kind"), KINDS)
@law
@given(seeds, st.integers(-40, 40), st.integers(-40, 40))
def test_permutations_are_a_group_action(name, kind, seed, first, second):
    a, b, _ = drawn(name, kind, seed, size=12)

    def permuted(vector, shift):
        return dv.vsa.permute(vector, shift, model=name)

    assert same(permuted(permuted(a, first), second), permuted(a, first + second))
    assert same(permuted(a, 0), a)
    assert same(permuted(permuted(a, first), -first), a)
    # They keep similarities, and go through bundles.
    before = dv.vsa.similarity(a, b, model=name)
    assert torch.allclose(dv.vsa.similarity(permuted(a, first), permuted(b, first), model=name), before, atol=1e-6)
    if name != "bsc":
        together = torch.stack([a, b])
        assert same(
            permuted(dv.vsa.bundle(together, model=name), first), dv.vsa.bundle(permuted(together, first), model=name)
        )


@pytest.mark.parametrize("name", models.names())
def test_all_powers_of_the_permutation_differ(name):
    """As many places as a row has, and each vector far from all of its permutations."""
    size = 128
    (a,) = drawn(name, None, 3, count=1, size=size)
    orbit = torch.stack([dv.vsa.permute(a, shift, model=name) for shift in range(size)])
    found = dv.vsa.similarities(a, orbit, model=name)
    assert found[0] == pytest.approx(1)
    assert (found[1:] < 0.9).all()


@pytest.mark.parametrize("name", models.names())
def test_what_is_bound_in_order_knows_its_order(name):
    a, b, _ = drawn(name, None, 0, size=1024)
    one = dv.vsa.bind(dv.vsa.permute(a, model=name), b, model=name)
    other = dv.vsa.bind(a, dv.vsa.permute(b, model=name), model=name)
    assert dv.vsa.similarity(one, other, model=name).abs() < 0.3


@pytest.mark.parametrize("length", [97, 128, 256, 1000])
def test_many_rows_are_permuted_as_each_of_them(length):
    """Whole blocks of many rows are copied; single rows, and those under a transform, go entry by entry."""
    rows = torch.randn(5, length, dtype=torch.float64, requires_grad=True)
    orbit = [dv.vsa.permute(torch.arange(length).expand(4, -1).double(), k, model="hrr")[0] for k in range(length)]
    assert len({tuple(each.tolist()) for each in orbit}) == length
    for shift in (1, 2, -1, -3, 7, length // 2, length - 1, 3 * length + 5):
        found = dv.vsa.permute(rows, shift, model="hrr")
        one_by_one = torch.stack([dv.vsa.permute(row, shift, model="hrr") for row in rows])
        mapped = torch.func.vmap(lambda row: dv.vsa.permute(row, shift, model="hrr"))(rows)  # noqa: B023
        assert torch.equal(found, one_by_one)
        assert torch.equal(found, mapped)
        (slopes,) = torch.autograd.grad(found, rows, one_by_one.detach())
        assert torch.equal(slopes, rows)


@pytest.mark.parametrize("length", [256, 1024])
def test_an_order_that_is_swapped_is_as_unlike_as_chance(length):
    a, b = dv.vsa.random(2, 64, length, model="hrr", generator=0)
    one = dv.vsa.bind(dv.vsa.permute(a, model="hrr"), b, model="hrr")
    other = dv.vsa.bind(a, dv.vsa.permute(b, model="hrr"), model="hrr")
    assert dv.vsa.similarity(one, other, model="hrr").mean().abs() < 1.5 / length**0.5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_lengths_whose_squares_do_not_fit(dtype):
    """One row that is too small, too large or zero leaves the others as they are alone, derivatives too."""
    limits = torch.finfo(dtype)
    plain = torch.randn(1, 64, dtype=dtype, generator=torch.Generator().manual_seed(0))
    scales = torch.tensor([1.0, limits.tiny * 4, limits.max / 8, 0.0], dtype=plain.real.dtype)
    rows = (plain * scales[:, None]).requires_grad_()
    found = dv.vsa.normalise(rows, model="hrr")
    expected = plain / plain.abs().square().sum().sqrt()
    assert torch.allclose(found[:3], expected.expand(3, -1), rtol=1e-5, atol=1e-7)
    assert torch.equal(found[3], torch.zeros_like(found[3]))
    alone = rows[:1].detach().requires_grad_()
    (slope,) = torch.autograd.grad(found[0].real.sum(), rows)
    (of_one,) = torch.autograd.grad(dv.vsa.normalise(alone, model="hrr").real.sum(), alone)
    assert torch.allclose(slope[:1], of_one, rtol=1e-4, atol=1e-6)
    assert torch.equal(slope[1:], torch.zeros_like(slope[1:]))


@pytest.mark.parametrize(("name", "kind"), KINDS)
@law
@given(seeds, st.floats(0.1, 9))
def test_similarities(name, kind, seed, scale):
    a, b, c = drawn(name, kind, seed)
    codebook = torch.stack([a, b, c])
    found = dv.vsa.similarities(codebook, codebook, model=name)
    assert found.shape == (3, 3)
    assert (found.abs() <= 1 + 1e-6).all()
    assert torch.allclose(found.diagonal(), torch.ones(3, dtype=found.dtype), atol=1e-6)
    assert torch.allclose(found, found.T, atol=1e-6)
    for k, other in enumerate(codebook):
        assert torch.allclose(dv.vsa.similarity(codebook, other, model=name), found[:, k], atol=1e-6)
    if name != "bsc":
        assert torch.allclose(dv.vsa.similarity(a * scale, b, model=name), found[0, 1], atol=1e-6)
        nothing = torch.zeros_like(a)
        assert dv.vsa.similarity(nothing, nothing, model=name) == 0


@pytest.mark.parametrize("name", models.names())
def test_bundles_are_like_their_items(name):
    vectors = drawn(name, None, 1, count=8, size=1024)
    bundled = dv.vsa.bundle(torch.stack(vectors[:5]), model=name)
    assert torch.equal(bundled, dv.vsa.bundle(*vectors[:5], model=name))
    found = dv.vsa.similarities(bundled, torch.stack(vectors), model=name)
    assert found[:5].min() > found[5:].max() + 0.15


@pytest.mark.parametrize(("name", "kind"), [pair for pair in KINDS if models.get(pair[0]).power is not None])
@law
@given(seeds, st.floats(-3, 3), st.floats(-3, 3))
def test_powers(name, kind, seed, s, t):
    (a,) = drawn(name, kind, seed, count=1, size=9)

    def power(exponent):
        return dv.vsa.power(a, exponent, model=name)

    repeated = dv.vsa.bind(dv.vsa.bind(a, a, model=name), a, model=name)
    assert same(power(3), repeated)
    assert same(power(1), a)
    assert same(power(0), dv.vsa.identity(*a.shape, dtype=a.dtype, model=name))
    if kind in ("unitary", "phases"):
        assert same(dv.vsa.bind(power(s), power(t), model=name), power(s + t))
        assert same(power(-1.0), dv.vsa.inverse(a, model=name))
        exponents = torch.tensor([s, t, 0.5], dtype=torch.float64)
        assert same(power(exponents), torch.stack([power(s), power(t), power(0.5)]))


def misses(a, s, t, model="block"):
    """By how much the law of powers is missed."""
    both = dv.vsa.bind(dv.vsa.power(a, s, model=model), dv.vsa.power(a, t, model=model), model=model)
    return float((both - dv.vsa.power(a, s + t, model=model)).abs().max())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex128])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 8, 64])
def test_half_powers_of_one_hot_blocks(length, dtype):
    """At frequency L/2 of an even length the spectrum of a one at an odd place is -1, which has no real root: the law
    is missed by 1/L, and a warning says so. Complex rows have all roots."""
    for place in range(length):
        a = torch.nn.functional.one_hot(torch.tensor([place]), length).to(dtype)
        lacks = not dtype.is_complex and length % 2 == 0 and place % 2 == 1
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            missed = misses(a, 0.5, 0.5)
        assert missed == pytest.approx(1 / length if lacks else 0, abs=1e-5)
        told = [str(note.message) for note in noted if issubclass(note.category, DerivableWarning)]
        assert bool(told) == lacks
        assert all("no real power" in text and f"or {length // 2} of" in text for text in told)


@pytest.mark.parametrize("name", ["hrr", "block"])
@pytest.mark.parametrize("length", [9, 10])
def test_powers_of_vectors_that_are_not_unitary(name, length):
    """The law holds wherever the real frequencies are not negative, also for vectors of other lengths than one."""
    torch.manual_seed(0)
    shape = (200, length) if name == "hrr" else (200, 1, length)
    a = torch.randn(shape, dtype=torch.float64)
    alternating = (a * torch.tensor([1.0, -1.0] * length, dtype=a.dtype)[:length]).sum(-1)
    has_root = (a.sum(-1) >= 0) & ((alternating >= 0) | (length % 2 == 1))
    has_root = has_root.reshape(200)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert misses(a[has_root], 0.3, 0.9, name) < 1e-9
        assert misses(a[has_root], -0.5, 2.25, name) < 1e-9
        assert misses(a, 1, 2, name) < 1e-9
    count = int((~has_root).sum())
    with pytest.warns(DerivableWarning, match=f"(?s)^(?=.*{count} of the rows)(?=.*help: take unitary vectors)"):
        assert misses(a[~has_root], 0.3, 0.9, name) > 1e-3


def test_powers_of_all_samplers_warn_where_the_law_fails():
    for name in ("hrr", "block", "fhrr"):
        for kind in models.get(name).samplers:
            a = dv.vsa.random(64, *(() if name != "block" else (2,)), 16, model=name, distribution=kind, generator=0)
            with warnings.catch_warnings(record=True) as noted:
                warnings.simplefilter("always")
                missed = misses(a, 0.5, 0.5, name)
            assert bool(noted) == (missed > 1e-4), (name, kind)


def test_powers_are_still_mapped():
    a = torch.nn.functional.one_hot(torch.tensor([[1], [2]]), 4).double()
    with pytest.warns(DerivableWarning, match="1 of the rows"):
        expected = dv.vsa.power(a, 0.5)
    assert torch.equal(torch.func.vmap(lambda row: dv.vsa.power(row, 0.5))(a), expected)


@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_normal_forms(name, kind):
    a, b, _ = drawn(name, kind, 0)
    normal = dv.vsa.normalise(a, model=name)
    assert same(dv.vsa.normalise(normal, model=name), normal)
    if kind in models.get(name).exact:
        assert same(normal, a)
    both = dv.vsa.normalise(dv.vsa.bundle(a, b, model=name), model=name)
    assert both.dtype == a.dtype
    assert not both.isnan().any()


def test_samplers_are_what_they_are_called():
    one_hot, unitary, mass, normal = (
        dv.vsa.random(50, 4, 32, distribution=kind, generator=0, dtype=torch.float64)
        for kind in ("one_hot", "unitary", "mass", "normal")
    )
    assert torch.equal(one_hot.sum(-1), torch.ones(50, 4, dtype=torch.float64))
    assert torch.equal(one_hot, one_hot**2)
    assert torch.allclose(torch.fft.fft(unitary).abs(), torch.ones(50, 4, 32, dtype=torch.float64))
    assert torch.allclose(mass.sum(-1), torch.ones(50, 4, dtype=torch.float64))
    assert (mass >= 0).all()
    assert normal.std().item() == pytest.approx(1 / math.sqrt(32), rel=0.05)
    assert torch.equal(normal, dv.vsa.random(50, 4, 32, distribution="normal", generator=0, dtype=torch.float64))
    assert dv.vsa.random(5, 7, model="hrr", distribution="unitary", dtype=torch.complex64).dtype == torch.complex64


@pytest.mark.parametrize(
    ("field", "value", "law"),
    [
        ("bind", lambda a, b: a * b * b, "bind(a, b) is bind(b, a)"),
        ("identity", lambda shape, dtype, device: torch.zeros(shape, dtype=dtype), "bind(a, identity) is a"),
        ("permute", lambda a, shift: a.roll(abs(shift), -1), "permute(permute(a, 1), -1) is a"),
        ("features", lambda a: a, "similarity(a, a) is 1"),
        ("inverse", lambda a: -a, "unbind(bind(a, b), a) is b"),
        ("power", lambda a, exponent: a, "power(a, 2) is bind(a, a)"),
        ("unbind", lambda c, a: c, "unbind(c, a) is bind(c, inverse(a))"),
    ],
)
def test_the_check_of_laws_can_fail(field, value, law):
    record = models.get("map")
    if field == "bind":
        record = dataclasses.replace(
            record, samplers={"normal": models.get("hrr").samplers["normal"]}, exact=frozenset()
        )
    found = list(violations(dataclasses.replace(record, **{field: value})))
    assert any(law in text for text in found)


@pytest.mark.parametrize("name", models.names())
def test_the_check_of_laws_passes(name):
    assert list(violations(models.get(name))) == []


def test_majorities():
    """Against counting; a tie is decided by an item, and in bundles of bundles no item is lost."""
    for count, seed in itertools.product((2, 3, 4), range(3)):
        bits = torch.stack(drawn("bsc", None, seed, count=count, size=10))
        bundled = dv.vsa.bundle(bits, model="bsc").tolist()
        for place in range(10):
            column = bits[:, place].tolist()
            surplus = sum(column) - (count - sum(column))
            assert bundled[place] == (surplus > 0) or surplus == 0
    items = torch.stack(drawn("bsc", None, 0, count=8, size=4096))
    for shift in (0, 1, 5):
        level = items
        while len(level) > 1:
            pairs = zip(level[::2], dv.vsa.permute(level[1::2], shift, model="bsc"))
            level = torch.stack([dv.vsa.bundle(*pair, model="bsc") for pair in pairs])
        for number, item in enumerate(items):
            placed = dv.vsa.permute(item, shift * number.bit_count(), model="bsc")
            assert dv.vsa.similarity(level[0], placed, model="bsc").item() == pytest.approx(1 / 8, abs=0.06)


def test_bits_as_probabilities():
    """What independent random bits give, by adding up all worlds."""
    a, b = torch.tensor([0.2, 1.0]), torch.tensor([0.7, 0.3])
    expected = [p * (1 - q) + q * (1 - p) for p, q in zip(a.tolist(), b.tolist())]
    assert dv.vsa.bind(a, b, model="bsc").tolist() == pytest.approx(expected)
    agree = [p * q + (1 - p) * (1 - q) for p, q in zip(a.tolist(), b.tolist())]
    expected = sum(2 * each - 1 for each in agree) / 2
    assert dv.vsa.similarity(a, b, model="bsc").item() == pytest.approx(expected)


@pytest.mark.parametrize("name", models.names())
def test_derivatives(name):
    dtype = torch.complex128 if name == "fhrr" else torch.float64
    kind = "normal" if name in ("block", "hrr") else None
    a, b = (vector.requires_grad_() for vector in drawn(name, kind, 0, count=2, size=3, dtype=dtype))
    weights = torch.tensor([0.3, 0.9], dtype=torch.float64, requires_grad=True)

    def everything(a, b, weights):
        bound = dv.vsa.bind(dv.vsa.permute(a, model=name), b, model=name)
        mixed = dv.vsa.bundle(torch.stack([bound, b]), weights=weights, model=name)
        left = dv.vsa.unbind(mixed, a, model=name)
        alike = dv.vsa.similarity(left, b, model=name)
        soft = dv.vsa.cleanup(left, torch.stack([a, b]), temperature=0.5, model=name)
        if models.get(name).power is not None:
            soft = dv.vsa.power(soft, 0.7, model=name)
        return alike, soft

    assert torch.autograd.gradcheck(everything, (a, b, weights))
    assert torch.autograd.gradgradcheck(everything, (a, b, weights), fast_mode=True)


def test_zeros_have_no_undefined_derivatives():
    a, b = torch.zeros(1, 2, 4, requires_grad=True), torch.rand(1, 2, 4)
    (dv.vsa.similarity(a, b).sum() + dv.vsa.normalise(a).sum() + dv.vsa.power(a, 1.5).sum()).backward()
    assert torch.equal(a.grad, torch.zeros_like(a))


@pytest.mark.parametrize(("name", "scale"), list(itertools.product(("block", "hrr", "map"), (1e-30, 1e30))))
def test_very_small_and_very_large_vectors_have_similarities(name, scale):
    a, b, _ = drawn(name, None, 0, dtype=torch.float32)
    expected = dv.vsa.similarity(a, a + b, model=name)
    assert torch.allclose(dv.vsa.similarity(a * scale, (a + b) * scale, model=name), expected)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
@pytest.mark.parametrize(("name", "kind"), KINDS)
def test_cuda_gives_what_the_cpu_gives(name, kind):
    a, b, c = drawn(name, kind, 0)
    here, there = torch.stack([a, b, c]), torch.stack([a, b, c]).cuda()
    for function in (
        lambda v: dv.vsa.bind(v, v[0], model=name),
        lambda v: dv.vsa.unbind(v, v[0], model=name),
        lambda v: dv.vsa.permute(v, 2, model=name),
        lambda v: dv.vsa.bundle(v, model=name),
        lambda v: dv.vsa.similarities(v, v, model=name),
        lambda v: dv.vsa.cleanup(v, v, temperature=0.1, model=name) if v.dtype != torch.bool else v,
    ):
        assert same(function(there).cpu(), function(here))
    assert dv.vsa.random(*here.shape, model=name, distribution=kind, device="cuda").is_cuda


@pytest.mark.parametrize("exponent", [float("nan"), float("inf"), -float("inf")])
def test_powers_that_are_no_numbers_are_no_fault_of_the_rows(exponent):
    rows = -torch.eye(8)[:4].reshape(4, 1, 8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert dv.vsa.power(rows, exponent).isnan().any()
    with pytest.warns(Warning, match="no real power"):
        dv.vsa.power(rows, 0.5)
