"""What layers are declared with: one fact twice, the fact without arguments, texts that nothing matches; and losses
that no input can lower.

Expected values: arithmetic.
"""

import warnings

import pytest
import torch

import derivable as dv
from derivable.core.diagnostics import DerivableWarning, DomainError, ShapeError, TypeMismatchError

TWICE = "type a(i32) rel q(x) = a(x) query q"
PROOFS = ["exact", "topkproofs", "samplekproofs", "topbottomkclauses"]
# provenance -> of values .3 and .4 of a choice, of independent facts .5 and .5
SUMS = {
    **dict.fromkeys(PROOFS, (0.7, 0.75)),
    "addmultprob": (0.7, 1.0),
    "nandmultprob": (0.58, 0.75),
    "maxmultprob": (0.4, 0.5),
    "minmaxprob": (0.4, 0.5),
}
COLOURS = {"colour": dv.categorical(["green", "red", "yellow"])}


@pytest.mark.parametrize("provenance", SUMS)
def test_the_same_fact_twice(provenance):
    chosen, free = SUMS[provenance]
    choice, facts = dv.categorical([1, 1, 2]), dv.independent([1, 1])
    program = dv.Program(TWICE)
    for given, p, expected in ((choice, [0.3, 0.4, 0.3], chosen), (facts, [0.5, 0.5], free)):
        make = dv.categorical if given is choice else dv.independent
        filled = make([x for (x,) in given.tuples], p)
        assert program.run({"a": filled}, provenance=provenance)["q"][1] == pytest.approx(expected)
        layer = dv.nn.Logic("type a(i32) rel q(x) = a(x)", {"a": given}, {"q": [1]}, provenance=provenance)
        assert layer(torch.tensor(p)).tolist() == pytest.approx([expected])
        # The same in the program's own text.
        mark = ";" if given is choice else ","
        text = f"rel a = {{{mark.join(f'{share}::{x}' for share, (x,) in zip(p, given.tuples))}}} {TWICE}"
        assert dv.Program(text).run(provenance=provenance)["q"][1] == pytest.approx(expected)


def test_the_fact_without_arguments():
    layer = dv.nn.Logic("type stop() rel go() = not stop()", {"stop": dv.independent(())}, {"go": (), "stop": ()})
    assert {name: float(value) for name, value in layer(torch.tensor(0.25)).items()} == {"go": 0.75, "stop": 0.25}
    assert layer(stop=torch.rand(4, 2))["go"].shape == (4, 2)
    run = dv.Program("type stop() rel go() = not stop() query go").run({"stop": dv.independent((), 0.25)})
    assert run["go"][()] == 0.75
    varying = dv.nn.Logic(
        "type stop() type a(i32) rel go(x) = a(x), not stop()",
        {"stop": dv.independent(()), "a": dv.varying()},
        {"go": [0]},
    )
    found = varying(stop=torch.tensor([0.25, 0.5]), a=[([0], torch.tensor([0.5]))] * 2)
    assert found.tolist() == [[0.375], [0.25]]
    with pytest.raises(TypeMismatchError, match="0 values for 2 columns"):
        dv.nn.Logic("type e(i32, i32) rel go() = e(0, 1)", {"e": dv.independent(())}, {"go": ()})
    assert len(dv.independent([])) == 0


def test_the_fact_without_arguments_in_jax():
    pytest.importorskip("jax")
    function = dv.nn.logic_function(
        "type stop() rel go() = not stop()", {"stop": dv.independent(())}, {"go": ()}, provenance="exact"
    )
    assert float(function(0.25)) == 0.75
    assert function([0.25, 0.5]).shape == (2,)


def test_constants_that_no_fact_matches():
    compared = 'rel go() = colour(c), c == "gren"', 'rel go() = colour(c), "gren" != c'
    for text in ('rel go() = colour("gren")', 'rel go() = not colour("gren")', *compared):
        with pytest.warns(DerivableWarning, match=r'no fact of `colour` has "gren"(?s:.*)did you mean "green"'):
            dv.nn.Logic(text, COLOURS, {"go": ()})
    with pytest.warns(DerivableWarning, match="gren"):
        dv.nn.Logic(
            'type c(String) rel go() = c(x), at("gren", x)', {"c": dv.independent(["a"])}, {"go": ()},
            facts={"at": [("green", "a")]},
        )  # fmt: skip


def test_outputs_that_nothing_derives():
    with pytest.warns(DerivableWarning, match=r'nothing derives "yelow"(?s:.*)did you mean "yellow"'):
        dv.nn.Logic("rel seen(c) = colour(c)", COLOURS, {"seen": ["green", "yelow"]})
    with pytest.warns(DerivableWarning, match=r'nothing derives "blue"(?s:.*)is 0 in every call'):
        dv.nn.Logic("rel seen(c) = colour(c)", COLOURS, {"seen": ["green", "blue"]})


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("rel seen(c) = colour(c)", ["green", "yellow"]),
        # Texts that are made, or come from other rules.
        ('rel seen($string_concat(c, "!")) = colour(c)', ["green!", "yellow!"]),
        ('rel more = {"green!"} rel seen(c) = more(c), colour("green")', ["green!"]),
        ('rel seen("green!") = colour("red")', ["green!"]),
        ('rel colour("gren") rel seen(c) = colour("gren"), colour(c)', ["green", "gren"]),
    ],
)
def test_what_may_be_is_no_warning(text, seen):
    with warnings.catch_warnings():
        warnings.simplefilter("error", DerivableWarning)
        dv.nn.Logic(text, COLOURS, {"seen": seen})


DIGITS = {name: dv.categorical(range(10)) for name in "de"}
FLOATS = {"d": dv.independent([0.1, 0.25])}
PATHS = "rel path(x, y) = edge(x, y) rel path(x, z) = path(x, y), edge(y, z)"
EDGES = {"edge": dv.independent([(0, 1), (1, 2)])}
IMPOSSIBLE = {
    "a sum": ("rel s(a + b) = d(a), e(b)", DIGITS, {"s": range(21)}, "nothing derives 19, 20, outputs of 's'"),
    "one number": ("rel s(a * 2) = d(a)", {"d": DIGITS["d"]}, {"s": [4, 5]}, "nothing derives 5, an output of 's'"),
    "no arguments": ("rel s() = d(1), d(2)", {"d": DIGITS["d"]}, {"s": ()}, "nothing derives (), an output of 's'"),
    "a node": (PATHS, EDGES, {"path": [(0, 2), (2, 3)]}, "nothing derives (2, 3), an output of 'path'"),
    "many": ("rel s(a) = d(a)", {"d": DIGITS["d"]}, {"s": range(9, 15)}, "nothing derives 10, 11, 12 and 2 more"),
    "a float": ("type d(f32) rel s(x + x) = d(x)", FLOATS, {"s": [0.5, 0.3]}, "nothing derives 0.3, an output"),
}


@pytest.mark.parametrize("provenance", ["exact", "topkproofs", "minmaxprob", "addmultprob", "max_plus"])
@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_numbers_that_nothing_derives(name, provenance):
    text, inputs, outputs, message = IMPOSSIBLE[name]
    if name == "no arguments" and provenance not in ("exact", "topkproofs"):
        # Other provenances do not know that a choice has one value.
        message = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        layer = dv.nn.Logic(text, inputs, outputs, provenance)
    said = [str(one.message) for one in caught]
    assert len(said) == (message is not None)
    if message is not None:
        assert said[0].startswith(message)
        assert "in every call" in said[0]
    if provenance == "exact":
        gone = [float(p) for p in layer(*(torch.full((len(some),), 1 / len(some)) for some in inputs.values())).ravel()]
        assert min(gone) == 0.0


def test_functions_of_jax_say_what_nothing_derives():
    pytest.importorskip("jax")
    for provenance in ("exact", "minmaxprob"):
        with pytest.warns(DerivableWarning, match="nothing derives 19, an output of 's'"):
            dv.nn.logic_function("rel s(a + b) = d(a), e(b)", DIGITS, {"s": range(20)}, provenance)


UNMATCHED = {
    "in an atom": ("rel s() = d(12) or d(1)", {"d": DIGITS["d"]}, "12"),
    "in a condition": ("rel s() = d(x), x == 12 or d(1)", {"d": DIGITS["d"]}, "12"),
    "a float": ("type d(f32) rel s() = d(0.3) or d(0.1)", FLOATS, "0.3"),
    "a negation": ("rel s() = not d(12)", {"d": DIGITS["d"]}, None),
    "what is not to be": ("rel s() = d(x), x != 12", {"d": DIGITS["d"]}, None),
    "a float of 32 bits": ("type d(f32) rel s() = d(0.1)", FLOATS, None),
    "a float of 64 bits": ("type d(f64) rel s() = d(x), x == 0.1", FLOATS, None),
    "another rule": ("rel d(12) rel s() = d(12)", {"d": DIGITS["d"]}, None),
}


@pytest.mark.parametrize("name", UNMATCHED)
def test_numbers_that_no_fact_has(name):
    text, inputs, value = UNMATCHED[name]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dv.nn.Logic(text, inputs, {"s": ()})
    said = [str(one.message) for one in caught]
    assert len(said) == (value is not None), said
    if value is not None:
        assert f"no fact of `d` has {value}" in said[0]
        assert "its values are" in said[0]


SUM = ("rel s(a + b) = d(a), e(b)", {name: dv.categorical(range(3)) for name in "de"}, {"s": range(6)})


@pytest.mark.parametrize("label", [4, 5])
def test_a_loss_that_is_infinite_names_its_label(label):
    """4 needs a digit of probability 0, and 5 no digits have."""
    layer, p = dv.nn.Logic(*SUM), torch.tensor([[0.5, 0.5, 0.0]] * 2, requires_grad=True)

    def step(*labels):
        torch.nn.functional.nll_loss(layer.log(p, p), torch.tensor(labels)).backward()

    with warnings.catch_warnings():
        warnings.simplefilter("error", DerivableWarning)
        step(1, 2)
    with pytest.warns(DerivableWarning, match=rf"depends on s\({label}\), of probability 0 in row \[1\]"):
        step(1, label)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DerivableWarning)
        step(1, label)


def test_a_logarithm_of_an_output_that_is_zero_leads_to_the_layer_s_own():
    layer = dv.nn.Logic(*SUM)

    def gradients(*labels):
        p = torch.tensor([[0.5, 0.5, 0.0]] * 2, requires_grad=True)
        layer(p, p)[[0, 1], list(labels)].log().sum().backward()
        return p.grad

    with warnings.catch_warnings():
        warnings.simplefilter("error", DerivableWarning)
        assert gradients(1, 2).isfinite().all()
    with pytest.warns(DerivableWarning, match=r"depends on s\(4\), of probability 0 in row \[1\](?s:.*)`layer\.log"):
        assert not gradients(1, 4).isfinite().all()
    with warnings.catch_warnings():
        warnings.simplefilter("error", DerivableWarning)
        gradients(1, 4)


@pytest.mark.parametrize("form", ["log", "log of the output"])
def test_an_infinite_loss_among_many_gradients_at_once(form):
    """Whether it warns or not: those of the other outputs are as they are one by one."""
    program = "type a(i32) rel q() = a(0) and a(1) rel r() = a(0) or a(1)"
    layer = dv.nn.Logic(program, {"a": dv.independent([0, 1])}, {"q": (), "r": ()})
    p = torch.tensor([0.0, 0.5], dtype=torch.float64, requires_grad=True)

    def logs(p):
        return torch.stack(
            [x if form == "log" else x.log() for x in (layer.log if form == "log" else layer)(p).values()]
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DerivableWarning)
        outputs, seeds = logs(p), torch.eye(2, dtype=torch.float64)
        each = torch.stack([torch.autograd.grad(outputs, p, seed, retain_graph=True)[0] for seed in seeds])
        many = torch.autograd.grad(outputs, p, seeds, is_grads_batched=True, retain_graph=True)[0]
        by_vmap = torch.vmap(lambda seed: torch.autograd.grad(outputs, p, seed, retain_graph=True)[0])(seeds)
        vectorised = torch.autograd.functional.jacobian(logs, p, vectorize=True)
    if form == "log":
        # P(r) = 1 - (1 - a)(1 - b)
        torch.testing.assert_close(each, torch.tensor([[0.0, 0.0], [1.0, 2.0]], dtype=torch.float64))
    for found in (many, by_vmap, vectorised):
        torch.testing.assert_close(found, each, equal_nan=True)


def test_an_impossible_constraint_warns_once():
    loss = dv.nn.SemanticLoss([[1], [2]])
    predictions = torch.tensor([[0.5, 0.5], [0.0, 0.5]])
    with pytest.warns(DerivableWarning, match=r"impossible for the predictions of row \[1\]"):
        loss(predictions)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DerivableWarning)
        assert torch.isinf(loss(predictions))


@pytest.mark.parametrize("inputs", ["probabilities", "log_probabilities"])
def test_logits_are_led_to_their_reading(inputs):
    with pytest.raises(DomainError, match=r'help: .*inputs="logits"'):
        dv.nn.semantic_loss([[1, 2]], torch.tensor([3.0, -2.0]), inputs=inputs)


@pytest.mark.parametrize(("inputs", "row"), [("logits", [-torch.inf, 0.0]), ("log_probabilities", [-torch.inf, -0.5])])
def test_an_impossible_constraint_leads_to_its_reading(inputs, row):
    with pytest.warns(DerivableWarning, match="impossible for the predictions") as caught:
        dv.nn.SemanticLoss([[1], [2]], inputs=inputs)(torch.tensor(row))
    assert "inputs='logits'" not in str(caught[0].message)


def test_logits_that_are_nan_are_named():
    with pytest.raises(DomainError, match=r"the predictions\[1, 0\] is NaN"):
        dv.nn.semantic_loss([[1, 2]], torch.tensor([[0.0, 1.0], [torch.nan, 0.0]]), inputs="logits")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_logits_of_few_bits_make_no_loss_below_zero(dtype):
    """(a or c) and (not a or b), for a and b certain: probability one whatever c is."""
    scores = torch.tensor([[torch.inf, torch.inf, score] for score in (0.0, 0.3, -2.0, 1.7)], dtype=dtype)
    loss = dv.nn.semantic_loss([[1, 3], [-1, 2]], scores, inputs="logits", reduction="none")
    torch.testing.assert_close(loss, torch.zeros(4), atol=1e-6, rtol=0)


@pytest.mark.parametrize(("value", "text"), [(1 + 1e-8, r"1\.00000001"), (-1e-8, "-1e-08"), (1.5, r"1\.5")])
def test_a_number_beside_a_probability_is_written_in_full(value, text):
    layer = dv.nn.Logic("type a(i32) rel q() = a(0)", {"a": dv.independent([0])}, {"q": ()})
    with pytest.raises(DomainError, match=rf"a\[0\] is {text}, which is not a probability"):
        layer(torch.tensor([value], dtype=torch.float64))
    with pytest.raises(DomainError, match=rf"the tag {text} of row 0"):
        layer.program.run({"a": [(value, (0,))]}, provenance="exact")


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"red", "green"}, "a set, whose order"),
        (frozenset({1, 2}), "a set, whose order"),
        ("red", r"the text 'red', .*\nhelp: for one fact \['red'\]"),
        ({"red": 0.5}, r"a dict, .*\nhelp: .*facts.values"),
    ],
)
def test_facts_of_an_axis_have_an_order(facts, message):
    for declare in (dv.independent, dv.categorical):
        with pytest.raises(DomainError, match=message):
            declare(facts)
    with pytest.raises(DomainError, match=f"output 'q' is {message}"):
        dv.nn.Logic("type c(String) rel q(x) = c(x)", {"c": dv.independent(["red"])}, {"q": facts})
    layer = dv.nn.Logic("type c(String) rel q(x) = c(x)", {"c": dv.varying()}, {"q": None})
    with pytest.raises((DomainError, TypeMismatchError), match=r"sample 0: .* (a set|the text|a dict)"):
        layer(c=[(facts, torch.rand(len(facts)))])
    with pytest.raises(DomainError, match=f"the outputs 'q' of sample 0 are {message}"):
        layer(c=[(["red"], torch.rand(1))], outputs={"q": [facts]})


def test_sparse_probabilities_are_refused():
    p = torch.tensor([0.5, 0.0]).to_sparse()
    layer = dv.nn.Logic("type a(i32) rel q(x) = a(x)", {"a": dv.independent([0, 1])}, {"q": [0]})
    for call in (layer, layer.log, dv.nn.SemanticLoss([[1, 2]])):
        with pytest.raises(ShapeError, match=r"sparse.*\nhelp: .*to_dense"):
            call(p)
