"""Logic layers against brute force over worlds, and their gradients against finite differences."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import derivable as dv
from derivable.core.diagnostics import BindingError, DomainError, ShapeError, UnsupportedError
from nn.worlds import expectation

SUM = "rel sum_2(a + b) = digit_1(a), digit_2(b)"
DIGITS = {"digit_1": dv.categorical(range(4)), "digit_2": dv.categorical(range(4))}
FACTORS = {name: dv.categorical(range(4), factors=True) for name in DIGITS}
SUMS = {"sum_2": range(7)}
EDGES = [(a, b) for a in range(3) for b in range(3) if a != b]
PATH = "type edge(i32, i32)\nrel path(a, b) = edge(a, b) or (path(a, c) and edge(c, b))"
ALARM = """
type burglary(), earthquake(), calls(i32)
rel alarm() = burglary() or earthquake()
rel quiet() = not alarm()
rel called(x) = alarm(), calls(x)
rel strange(x) = calls(x), not alarm()
"""
PROVENANCES = ["exact", "minmaxprob", "addmultprob", "topkproofs"]
# The kernels are compiled for one; those of the others are proven where circuits are.


def rows(*shape, seed=0):
    return torch.rand(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def reachable(edges):
    known = {pair for pair, holds in zip(EDGES, edges) if holds}
    while True:
        more = known | {(a, d) for a, b in known for c, d in known if b == c}
        if more == known:
            return known
        known = more


def sums_of(first, second):
    return [first.index(True) + second.index(True) == total for total in range(7)]


def test_sum_of_digits_is_exact():
    p, q = rows(5, 4).softmax(-1), rows(5, 4, seed=1).softmax(-1)
    layer = dv.nn.Logic(SUM, DIGITS, SUMS)
    expected = expectation([(p, True), (q, True)], sums_of, 7)
    torch.testing.assert_close(layer(digit_1=p, digit_2=q), expected, rtol=1e-13, atol=0)
    torch.testing.assert_close(layer.log(digit_1=p, digit_2=q), expected.log(), rtol=1e-12, atol=0)
    in_logs = dv.nn.Logic(SUM, DIGITS, SUMS, log_probabilities=True)
    torch.testing.assert_close(in_logs(digit_1=p.log(), digit_2=q.log()), expected.log(), rtol=1e-12, atol=0)


def test_factors_are_weights():
    p, q = 3.0 * rows(2, 4), 0.9 * rows(2, 4, seed=1)
    expected = expectation([(p, True), (q, True)], sums_of, 7)
    torch.testing.assert_close(dv.nn.Logic(SUM, FACTORS, SUMS)(p, q), expected, rtol=1e-13, atol=0)
    in_logs = dv.nn.Logic(SUM, FACTORS, SUMS, log_probabilities=True)
    torch.testing.assert_close(in_logs(p.log(), q.log()), expected.log(), rtol=1e-12, atol=1e-12)
    with pytest.raises(DomainError, match=r"digit_1\[0, 0\] is -2.91016, which is not a factor, from 0 on"):
        dv.nn.Logic(SUM, FACTORS, SUMS)(-p, q)
    with pytest.raises(DomainError, match="NaN"):
        dv.nn.Logic(SUM, FACTORS, SUMS)(p * torch.nan, q)
    with pytest.raises(DomainError, match="factors are given at evaluation"):
        dv.categorical([1, 2], [0.5, 0.5], factors=True)


@pytest.mark.parametrize("provenance", ["exact", "topkproofs", "minmaxprob", "addmultprob"])
def test_rows_of_a_choice_add_up_to_one(provenance):
    """A sigmoid where a softmax belongs has a probability of 1.5, and a loss below 0."""
    layer = dv.nn.Logic(SUM, DIGITS, SUMS, provenance)
    scores = rows(3, 4, seed=2)
    fine = scores.softmax(-1)
    for wrong, total in ((scores.sigmoid(), r"2\.\d+"), (0.5 * fine, "0.5"), (1.002 * fine, "1.002")):
        with pytest.raises(
            DomainError, match=f"row .0. of digit_2 adds up to {total}, .* add up to one .3 of 3"
        ) as error:
            layer(fine, wrong)
        assert "softmax(-1)" in error.value.hint
        assert "factors=True" in error.value.hint
    with pytest.raises(DomainError, match="digit_1 adds up to"):
        layer(fine[0] * 0.9, fine)
    assert layer(1.0009 * fine, fine).shape == (3, 7)
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert layer(torch.randn(50, 4).to(dtype).softmax(-1), fine[:1].to(dtype)).shape == (50, 7)
    assert layer(fine[:0], fine[:0]).shape == (0, 7)


def test_rows_of_a_choice_in_logs():
    layer = dv.nn.Logic(SUM, DIGITS, SUMS, log_probabilities=True)
    scores = rows(3, 4)
    assert layer(scores.log_softmax(-1), scores.log_softmax(-1)).shape == (3, 7)
    with pytest.raises(DomainError, match=r"row .0. of digit_1 adds up to") as error:
        layer(torch.nn.functional.logsigmoid(scores), scores.log_softmax(-1))
    assert "log_softmax(-1)" in error.value.hint


def test_rows_of_a_choice_in_transformations():
    """Inside vmap the facts may be another axis of what is there, and torch.compile does not look at values."""
    layer = dv.nn.Logic(SUM, DIGITS, SUMS)
    p, q = rows(5, 4).softmax(-1), rows(5, 4, seed=1).softmax(-1)
    expected = layer(p, q)
    torch.testing.assert_close(torch.func.vmap(layer, in_dims=(1, 0))(p.T.contiguous(), q), expected)
    torch.testing.assert_close(torch.func.vmap(layer, in_dims=(0, None))(p, q[0]), layer(p, q[:1]))
    with pytest.raises(DomainError, match="digit_1 adds up to"):
        torch.func.vmap(layer, in_dims=(1, 0))(2 * p.T.contiguous() / 3, q)
    jacobian = torch.func.jacrev(lambda p: layer(p, q[0]))(p[0])
    assert jacobian.shape == (7, 4)
    tangent = torch.func.jvp(lambda p: layer(p, q[0]), (p[0],), (torch.ones(4, dtype=p.dtype),))[1]
    torch.testing.assert_close(tangent, jacobian.sum(1))


PROVENANCES_WITH_DERIVATIVES = [
    *("exact", "topkproofs", "minmaxprob", "addmultprob", "real", "max_product", "log", "min_plus"),
]


@pytest.mark.parametrize("provenance", PROVENANCES_WITH_DERIVATIVES)
def test_a_derivative_by_what_does_not_matter_is_zero(provenance):
    """No output that can be derived, an input that no output depends on, no facts, no rows: never an error."""
    edges, path = {"edge": dv.independent([(0, 1), (1, 2)])}, PATH
    cases = [
        (path, edges, {"path": [(5, 6)]}, [(2, 2)]),
        (path, edges, {"path": [(5, 6)]}, [(0, 2)]),
        ("type a(i32)\nrel p(x) = a(x)", {"a": dv.independent([])}, {"p": [1]}, [(3, 0)]),
        (
            "rel p(x) = a(x)\nrel q(x) = b(x)",
            {"a": dv.independent([1]), "b": dv.independent([1])},
            {"p": [2]},
            [(1,), (1,)],
        ),
        ("type z()\nrel p() = z(), edge(0, 1)", edges, {"p": ()}, [(2,)]),
        ("rel p(7) = edge(0, 1) and false\nrel p(x) = x == 3", edges, {"p": [3, 7]}, [(4, 2)]),
    ]
    for text, inputs, outputs, shapes in cases:
        layer = dv.nn.Logic(text, inputs, outputs, provenance)
        for call in (layer, torch.func.vmap(layer)) if shapes[0][:1] == (2,) and len(shapes[0]) > 1 else (layer,):
            tensors = [torch.rand(shape, requires_grad=True) for shape in shapes]
            for found in torch.autograd.grad(call(*tensors).sum(), tensors):
                assert found.count_nonzero() == 0
            call(*tensors).sum().backward()
            assert all(t.grad.count_nonzero() == 0 for t in tensors)


def test_recursion_is_exact():
    p = rows(2, 6)
    layer = dv.nn.Logic(PATH, {"edge": dv.independent(EDGES)}, {"path": EDGES})
    expected = expectation([(p, False)], lambda edges: [pair in reachable(edges) for pair in EDGES], 6)
    torch.testing.assert_close(layer(edge=p), expected, rtol=1e-12, atol=0)
    torch.testing.assert_close(layer.log(edge=p), expected.log(), rtol=1e-12, atol=1e-14)


def alarm_layer(provenance="exact", factors=False, **options):
    calls = dv.categorical([1, 2], factors=factors)
    inputs = {"burglary": dv.independent([()]), "earthquake": dv.independent([()]), "calls": calls}
    outputs = {"alarm": (), "quiet": (), "called": [1, 2], "strange": [2]}
    return dv.nn.Logic(ALARM, inputs, outputs, provenance, **options)


def alarm_values(seed=3):
    return {"burglary": rows(3, 1, seed=seed), "earthquake": rows(3, 1, seed=4), "calls": rows(3, 2).softmax(-1)}


def alarm_outcome(burglary, earthquake, calls):
    alarm = burglary[0] or earthquake[0]
    return [alarm, not alarm, alarm and calls[0], alarm and calls[1], calls[1] and not alarm]


def test_negation_and_several_outputs():
    values = alarm_values()
    result = alarm_layer()(**values)
    inputs = [(values["burglary"], False), (values["earthquake"], False), (values["calls"], True)]
    expected = expectation(inputs, alarm_outcome, 5)
    assert {name: part.shape for name, part in result.items()} == {
        "alarm": (3,),
        "quiet": (3,),
        "called": (3, 2),
        "strange": (3, 1),
    }
    got = torch.cat([result["alarm"][:, None], result["quiet"][:, None], result["called"], result["strange"]], 1)
    torch.testing.assert_close(got, expected, rtol=1e-13, atol=0)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_random_formulas_over_mixed_inputs(data):
    """Rules drawn at random over a choice of three and two independent facts."""
    atoms = ["c(0)", "c(1)", "c(2)", "f(0)", "f(1)", "not f(0)", "not c(1)"]
    bodies = data.draw(st.lists(st.lists(st.sampled_from(atoms), min_size=1, max_size=3), min_size=1, max_size=4))
    text = "type c(i32), f(i32)\n" + "".join(f"rel out() = {', '.join(body)}\n" for body in bodies)
    used = "rel used_c(x) = c(x)\nrel used_f(x) = f(x)\n"
    p = torch.tensor([data.draw(st.lists(st.floats(0, 1), min_size=3, max_size=3))], dtype=torch.float64)
    p = (p + 0.01) / (p + 0.01).sum()
    q = torch.tensor([data.draw(st.lists(st.floats(0, 1), min_size=2, max_size=2))], dtype=torch.float64)

    def holds(c, f):
        facts = {"c(0)": c[0], "c(1)": c[1], "c(2)": c[2], "f(0)": f[0], "f(1)": f[1]}
        return [any(all(facts[a[-4:]] != a.startswith("not") for a in body) for body in bodies)]

    expected = expectation([(p, True), (q, False)], holds, 1)[:, 0]
    inputs = {"c": dv.categorical(range(3)), "f": dv.independent(range(2))}
    exact = dv.nn.Logic(text + used, inputs, {"out": ()})
    torch.testing.assert_close(exact(c=p, f=q), expected, rtol=1e-9, atol=1e-12)
    # With as many proofs as there can be, topkproofs is exact too.
    proofs = dv.nn.Logic(text + used, inputs, {"out": ()}, "topkproofs", k=8)
    torch.testing.assert_close(proofs(c=p, f=q), expected, rtol=1e-9, atol=1e-12)


def test_min_max():
    p, q = rows(5, 4).softmax(-1), rows(5, 4, seed=1).softmax(-1)
    expected = torch.stack(
        [
            torch.stack([torch.minimum(p[:, a], q[:, s - a]) for a in range(4) if 0 <= s - a < 4]).amax(0)
            for s in range(7)
        ],
        1,
    )
    assert torch.equal(dv.nn.Logic(SUM, DIGITS, SUMS, "minmaxprob")(p, q), expected)
    values = alarm_values()
    result = alarm_layer("minmaxprob")(**values)
    alarm = torch.maximum(values["burglary"], values["earthquake"])[:, 0]
    assert torch.equal(result["alarm"], alarm)
    assert torch.equal(result["quiet"], 1 - alarm)
    assert torch.equal(result["strange"][:, 0], torch.minimum(values["calls"][:, 1], 1 - alarm))


def test_min_max_of_paths_is_the_widest_path():
    p = rows(4, 6)
    layer = dv.nn.Logic(PATH, {"edge": dv.independent(EDGES)}, {"path": EDGES}, "minmaxprob")
    width = torch.zeros(4, 3, 3, dtype=torch.float64)
    for place, (a, b) in enumerate(EDGES):
        width[:, a, b] = p[:, place]
    for middle in range(3):
        width = torch.maximum(width, torch.minimum(width[:, :, middle, None], width[:, None, middle, :]))
    assert torch.equal(layer(edge=p), torch.stack([width[:, a, b] for a, b in EDGES], 1))


def test_ties_go_to_the_smallest_index():
    layer = dv.nn.Logic("type f(i32)\nrel out() = f(_)", {"f": dv.independent(range(3))}, {"out": ()}, "minmaxprob")
    p = torch.tensor([0.2, 0.7, 0.7], dtype=torch.float64, requires_grad=True)
    layer(f=p).backward()
    assert p.grad.tolist() == [0, 1, 0]


def test_add_mult():
    p, q = rows(5, 4), rows(5, 4, seed=1)
    expected = torch.stack(
        [
            torch.stack([p[:, a] * q[:, s - a] for a in range(4) if 0 <= s - a < 4]).sum(0).clamp(max=1)
            for s in range(7)
        ],
        1,
    )
    layer = dv.nn.Logic(SUM, FACTORS, SUMS, "addmultprob")
    torch.testing.assert_close(layer(p, q), expected, rtol=1e-13, atol=0)
    assert (expected == 1).any()


def test_many_proofs_make_a_decision_diagram():
    """Twenty proofs of sums that exclude each other are all of them; values and gradients are those of exact."""
    p, q = (rows(2, 4, seed=seed).softmax(-1).requires_grad_() for seed in range(2))
    results = []
    for options in ({"provenance": "topkproofs", "k": 20}, {"provenance": "exact"}):
        y = dv.nn.Logic(SUM, DIGITS, SUMS, **options)(p, q)
        results.append((y, *torch.autograd.grad((y * torch.arange(7)).sum(), (p, q))))
    for one, other in zip(*results):
        torch.testing.assert_close(one, other)
    for wrong in (0, 2.5, "many"):
        with pytest.raises(dv.DerivableError, match="at least one proof"):
            dv.nn.Logic(SUM, DIGITS, SUMS, "topkproofs", k=wrong)


@pytest.mark.parametrize("k", [3, 17, 300])
def test_derivatives_at_a_probability_of_one(k):
    """Of the fact that is certain, what holds without it counts."""
    text = "type e(i32, i32)\ntype u(i32)\nrel p(x, y) = e(x, y)\nrel p(x, x) = u(x)\nrel q(x) = p(x, 1)"
    facts = {"e": dv.independent([(1, 1), (0, 1)]), "u": dv.independent([1])}
    layer = dv.nn.Logic(text, facts, {"q": range(2)}, "topkproofs", k=k)
    e = torch.tensor([1.0, 0.5], dtype=torch.float64, requires_grad=True)
    u = torch.tensor([0.25], dtype=torch.float64, requires_grad=True)
    y = layer(e=e, u=u)
    assert y.tolist() == [0.5, 1.0]
    of_e, of_u = torch.autograd.grad(y.sum(), [e, u])
    assert (of_e.tolist(), of_u.tolist()) == ([0.75, 1.0], [0.0])


def test_top_k_proofs_keeps_the_best():
    p, q = rows(6, 4).softmax(-1), rows(6, 4, seed=1).softmax(-1)
    for k in (1, 2, 3):
        expected = torch.stack(
            [
                torch.stack([p[:, a] * q[:, s - a] for a in range(4) if 0 <= s - a < 4])
                .topk(min(k, min(s, 6 - s) + 1), 0)[0]
                .sum(0)
                for s in range(7)
            ],
            1,
        )
        layer = dv.nn.Logic(SUM, DIGITS, SUMS, "topkproofs", k=k)
        torch.testing.assert_close(layer(p, q), expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("provenance", PROVENANCES)
def test_gradients_of_negation_and_recursion(provenance):
    # Small, so that addmultprob stays below its cut, where it has no derivative in the ordinary sense.
    values = {name: (0.4 * value).requires_grad_() for name, value in alarm_values().items()}
    layer = alarm_layer(provenance, factors=True)
    names = list(values)

    def outputs(*tensors):
        return tuple(layer(**dict(zip(names, tensors))).values())

    assert torch.autograd.gradcheck(outputs, tuple(values.values()), eps=1e-7, atol=1e-6)
    paths = dv.nn.Logic(PATH, {"edge": dv.independent(EDGES)}, {"path": EDGES}, provenance)
    assert torch.autograd.gradcheck(paths, (0.3 * rows(2, 6)).requires_grad_(), eps=1e-7, atol=1e-6)


@pytest.mark.parametrize("log_inputs", [False, True])
def test_gradients_of_log_probabilities(log_inputs):
    p, q = rows(3, 4).softmax(-1), rows(3, 4, seed=1).softmax(-1)
    layer = dv.nn.Logic(SUM, DIGITS, SUMS, log_probabilities=log_inputs)
    tensors = [(t.log() if log_inputs else t).requires_grad_() for t in (p, q)]
    assert torch.autograd.gradcheck(layer.log, tensors, eps=1e-7, atol=1e-6)
    edges = dv.nn.Logic(PATH, {"edge": dv.independent(EDGES)}, {"path": EDGES}, log_probabilities=log_inputs)
    e = 0.1 + 0.8 * rows(2, 6)
    assert torch.autograd.gradcheck(edges.log, (e.log() if log_inputs else e).requires_grad_(), eps=1e-7, atol=1e-5)


def test_log_probabilities_do_not_underflow():
    """In float32, products of 1e-30 underflow; their logarithms and gradients do not."""
    layer = dv.nn.Logic(SUM, DIGITS, SUMS, log_probabilities=True)
    scores = torch.tensor([[0.0, 100.0, 0.0, 0.0]], requires_grad=True)
    result = layer(digit_1=scores.log_softmax(-1), digit_2=scores.log_softmax(-1))
    assert float(result.detach()[0, 0]) == pytest.approx(-200)
    torch.nn.functional.nll_loss(result, torch.tensor([0])).backward()
    assert scores.grad[0].tolist() == pytest.approx([-2, 2, 0, 0], abs=1e-6)
    hard = torch.tensor([[0.0, 1.0, 0.0, 0.0]], requires_grad=True)
    plain = dv.nn.Logic(SUM, DIGITS, SUMS)
    value = plain.log(digit_1=hard, digit_2=hard)
    assert value.tolist()[0] == [-torch.inf, -torch.inf, 0.0, *[-torch.inf] * 4]
    value[0, 2].backward()
    assert torch.isfinite(hard.grad).all()


@pytest.mark.parametrize("provenance", PROVENANCES)
def test_facts_of_the_program_and_further_facts(provenance):
    text = """
    type digit(i32), even(i32), bonus(i32)
    rel 0.25::lucky()
    rel wins(x) = digit(x), even(x), lucky()
    rel paid(x) = digit(x), bonus(x)
    """
    layer = dv.nn.Logic(
        text,
        {"digit": dv.categorical(range(3))},
        {"wins": range(3), "paid": range(3)},
        provenance,
        facts={"even": [0, 2], "bonus": [1]},
    )
    p = torch.tensor([[0.2, 0.5, 0.3]])
    result = layer(digit=p)
    wins = [0.2, 0, 0.25] if provenance == "minmaxprob" else [0.05, 0, 0.075]
    torch.testing.assert_close(result["wins"], torch.tensor([wins]))
    torch.testing.assert_close(result["paid"], torch.tensor([[0, 0.5, 0]]))


@pytest.mark.parametrize("provenance", PROVENANCES)
def test_batches(provenance):
    layer = dv.nn.Logic(SUM, DIGITS, SUMS, provenance)
    p, q = torch.rand(2, 3, 4).softmax(-1), torch.rand(4).softmax(-1)
    result = layer(digit_1=p, digit_2=q)
    assert result.shape == (2, 3, 7)
    torch.testing.assert_close(result[1, 2], layer(digit_1=p[1, 2], digit_2=q))
    assert layer(digit_1=p[:0], digit_2=q).shape == (0, 3, 7)
    mixed = layer(digit_1=p[0].double(), digit_2=q)
    assert mixed.dtype == torch.float64
    permuted = p.transpose(0, 1)
    assert not permuted.is_contiguous()
    torch.testing.assert_close(layer(permuted, q), result.transpose(0, 1))


@pytest.mark.parametrize("provenance", PROVENANCES)
def test_copies_compilation_and_parallel(provenance):
    layer = dv.nn.Logic(SUM, DIGITS, SUMS, provenance)
    p, q = torch.rand(3, 4).softmax(-1), torch.rand(3, 4).softmax(-1)
    expected = layer(digit_1=p, digit_2=q)
    for other in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer)), torch.nn.DataParallel(layer)):
        assert torch.equal(other(digit_1=p, digit_2=q), expected)
    assert layer.state_dict() == {}
    assert layer.to(torch.float64) is layer
    assert list(layer.parameters()) == []


@pytest.mark.parametrize("provenance", PROVENANCES)
def test_torch_compile(provenance):
    layer = dv.nn.Logic(SUM, DIGITS, SUMS, provenance)
    network = torch.nn.Linear(5, 4)

    def step(x):
        return layer(digit_1=network(x).softmax(-1), digit_2=network(2 * x).softmax(-1)).square().sum()

    x = torch.rand(3, 5)
    expected = torch.autograd.grad(step(x), network.weight)[0]
    compiled = torch.compile(step, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), step(x))
    torch.testing.assert_close(torch.autograd.grad(compiled(x), network.weight)[0], expected)


def test_training_leaves_the_compiler_alone():
    """torch._dynamo takes seconds to import."""
    code = """
import sys, torch, derivable as dv
names = {"digit_1": dv.categorical(range(3)), "digit_2": dv.categorical(range(3))}
for provenance in ("exact", "minmaxprob", "addmultprob", "topkproofs"):
    layer = dv.nn.Logic("rel sum_2(a + b) = digit_1(a), digit_2(b)", names, {"sum_2": range(5)}, provenance)
    network = torch.nn.Linear(4, 3)
    p = network(torch.rand(2, 4)).softmax(-1)
    layer(p, p).square().sum().backward()
    with torch.no_grad():
        network.weight -= 0.1 * network.weight.grad
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_the_ways_to_give_a_program(tmp_path):
    path = tmp_path / "sum.scl"
    path.write_text(SUM)
    p, q = torch.rand(2, 4).softmax(-1), torch.rand(2, 4).softmax(-1)
    expected = dv.nn.Logic(SUM, DIGITS, SUMS)(p, q)
    for program in (path, str(path), dv.Program(SUM)):
        assert torch.equal(dv.nn.Logic(program, DIGITS, SUMS)(p, q), expected)


def test_explain():
    layer = dv.nn.Logic(SUM, DIGITS, SUMS)
    assert layer.circuit.num_roots == 7
    assert "categorical(4 facts), tensor [*batch, 4]" in layer.explain()
    assert "digit_1" in layer.explain("ram")
    assert "level" in layer.explain("levels")
    assert "digit_1: 4, digit_2: 4 -> sum_2: 7" in repr(layer)
    with pytest.raises(UnsupportedError):
        _ = dv.nn.Logic(SUM, DIGITS, SUMS, "minmaxprob").circuit


def layer_call(**inputs):
    return lambda: dv.nn.Logic(SUM, DIGITS, SUMS)(**inputs)


GOOD = torch.full((2, 4), 0.25)
MISUSE = {
    "missing": (layer_call(digit_1=GOOD), BindingError, r"no tensor for 'digit_2'"),
    "misspelt": (
        layer_call(digit_1=GOOD, digit2=GOOD),
        BindingError,
        r"no input relation 'digit2'; did you mean 'digit_\d'\?",
    ),
    "shape": (
        layer_call(digit_1=GOOD, digit_2=torch.rand(2, 5)),
        ShapeError,
        r"input 'digit_2' has shape \[2, 5\]; categorical\(4 facts\) needs \[\*batch, 4\]",
    ),
    "batch": (
        layer_call(digit_1=GOOD, digit_2=torch.full((3, 4), 0.25)),
        ShapeError,
        r"digit_1 \[2, 4\], digit_2 \[3, 4\]",
    ),
    "nan": (layer_call(digit_1=GOOD, digit_2=GOOD * torch.nan), DomainError, r"digit_2\[0, 0\] is NaN"),
    "scores": (
        layer_call(digit_1=GOOD, digit_2=GOOD + 3),
        DomainError,
        r"3\.25, which is not a probability",
    ),
    "list": (layer_call(digit_1=GOOD, digit_2=[0.25] * 4), ShapeError, r"is a list, not a tensor"),
    "provenance": (
        lambda: dv.nn.Logic(SUM, DIGITS, SUMS, "minmaxprobs"),
        DomainError,
        r"no provenance 'minmaxprobs'\nhelp: did you mean 'minmaxprob'\?",
    ),
    "list of outputs": (lambda: dv.nn.Logic(SUM, DIGITS, ["sum_2"]), DomainError, r"outputs is a list(.|\n)*map each"),
    "no outputs": (lambda: dv.nn.Logic(SUM, DIGITS, {}), DomainError, r"needs outputs"),
    "unknown output": (lambda: dv.nn.Logic(SUM, DIGITS, {"sum_3": range(7)}), BindingError, r"unknown output relation"),
    "unused input": (
        lambda: dv.nn.Logic(SUM, {**DIGITS, "digit_3": dv.categorical(range(4))}, SUMS),
        BindingError,
        r"does not use the input `digit_3`",
    ),
    "no mapping": (lambda: dv.nn.Logic(SUM, {**DIGITS, "digit_2": range(4)}, SUMS), DomainError, r"given as range"),
    "log of min": (
        lambda: dv.nn.Logic(SUM, DIGITS, SUMS, "minmaxprob").log(GOOD, GOOD),
        UnsupportedError,
        r"no log-space form",
    ),
}


@pytest.mark.parametrize("name", MISUSE)
def test_misuse_is_explained(name):
    call, kind, message = MISUSE[name]
    with pytest.raises(kind, match=message) as caught:
        call()
    assert caught.value.hint is not None


def test_rounding_in_a_softmax_is_tolerated():
    layer = dv.nn.Logic(SUM, DIGITS, SUMS)
    p = torch.tensor([[1.0 + 1e-6, -1e-6, 0.0, 0.0]])
    result = layer(digit_1=p, digit_2=p)
    assert result.max() <= 1
    assert not torch.isnan(layer.log(digit_1=p, digit_2=p)).any()
