"""Tuples whose probability underflows stay, tuples in no world do not, and impossible evidence is a sentence.

Expected values: products of exponents, log-sum-exp, and which worlds there are.
"""

import math
import pickle

import pytest
import torch

import derivable as dv
from derivable.core.diagnostics import AbsentTupleError

TEXT = "type a(i32) rel q() = a(0), a(1), a(2) rel z() = not q() query q query z"
PROBABILITIES = (
    *("exact", "topkproofs", "samplekproofs", "topbottomkclauses", "topkproofsdebug"),
    *("addmultprob", "nandmultprob", "maxmultprob", "max_product", "minmaxprob", "nandminprob"),
)


def run(given, provenance):
    facts = {"a": dv.independent([0, 1, 2], given)}
    return dv.Program(TEXT).run(facts, provenance=provenance)


@pytest.mark.parametrize("provenance", [*PROBABILITIES, "log", "real"])
def test_a_product_that_underflows_is_there(provenance):
    db = run([1e-160] * 3, provenance)
    assert list(db["q"]) == [()]
    tag = db["q"][()]
    tag = tag[0] if isinstance(tag, tuple) else tag
    if provenance == "log":
        assert tag == pytest.approx(math.log(1e-160) * 3)
    else:
        assert tag == (1e-160 if "min" in provenance else pytest.approx(0, abs=1e-300))
    assert list(db["z"]) == [()]


@pytest.mark.parametrize("provenance", [*PROBABILITIES, "log", "real"])
def test_what_is_in_no_world_is_not_there(provenance):
    db = run([0.0, 0.5, 0.5], provenance)
    assert list(db["q"]) == []
    assert list(run([1.0] * 3, provenance)["z"]) == []


@pytest.mark.parametrize("provenance", ["exact", "topkproofs", "addmultprob", "maxmultprob"])
def test_recursions_reach_what_is_improbable(provenance):
    program = dv.Program("type edge(i32, i32) rel path(a, b) = edge(a, b) or (path(a, c), edge(c, b)) query path(0, x)")
    edges = dv.independent([(n, n + 1) for n in range(8)], [1e-90] * 8)
    rows = program.run({"edge": edges}, provenance=provenance)["path(0, x)"]
    assert sorted(rows) == [(0, n) for n in range(1, 9)]
    assert rows[0, 3] == pytest.approx(1e-270)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("provenance", ["exact", "topkproofs", "samplekproofs", "addmultprob", "maxmultprob"])
def test_layers_that_show_what_is_derived(provenance, dtype):
    layer = dv.nn.Logic(
        "type a(i32) rel q() = a(0), a(1), a(2) rel w(x) = a(x)",
        {"a": dv.varying()},
        {"q": None, "w": None},
        provenance=provenance,
    )
    samples = [[1e-30] * 3, [0.0, 0.5, 0.5], [1e-160] * 3]
    found = layer(a=[([0, 1, 2], torch.tensor(row, dtype=dtype)) for row in samples])
    is_zero = dtype == torch.float32
    assert [rows for rows, _ in found["q"]] == [[()], [], [] if is_zero else [()]]
    assert [len(rows) for rows, _ in found["w"]] == [3, 2, 0 if is_zero else 3]


def test_kept_runs_show_the_same():
    program = dv.Program(TEXT)
    for given, there in (([0.5] * 3, True), ([1e-160] * 3, True), ([0.0, 1.0, 1.0], False), ([1e-200] * 3, True)):
        db = program.run({"a": dv.independent([0, 1, 2], given)}, provenance="exact")
        assert (() in db["q"]) == there


def test_posteriors_by_logarithms():
    """Naive Bayes of 400 words and four classes."""
    layer = dv.nn.Logic(
        "rel read(c, 0) = topic(c) rel read(c, n + 1) = read(c, n), word(n, c) rel text(c) = read(c, 400)",
        {"topic": dv.categorical(range(4)), "word": dv.independent([(n, c) for n in range(400) for c in range(4)])},
        {"text": range(4)},
    )
    generator = torch.Generator().manual_seed(0)
    prior = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)
    word = 0.05 + 0.02 * torch.rand(400, 4, generator=generator, dtype=torch.float64)
    found, expected = layer.log(prior, word.flatten()), prior.log() + word.log().sum(0)
    assert float(expected.logsumexp(0)) < -1000
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(found.softmax(-1), expected.softmax(-1))


def test_impossible_evidence_is_a_sentence():
    view = run([0.0, 0.5, 0.5], "exact")["q"]
    with pytest.raises(AbsentTupleError, match=r"q\(\) is in no world of this run\nhelp: .*evidence") as caught:
        view[()]
    assert isinstance(caught.value, KeyError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert view.get((), 0.0) == 0.0
    with pytest.raises(AbsentTupleError, match=r"q\(1, 2\) is no tuple of `q`, which has 0 columns"):
        view[1, 2]
    certain = dv.Program('rel p = {("a", 1)} query p').run()["p"]
    with pytest.raises(KeyError, match=r'p\("b", 1\) is not derived'):
        certain["b", 1]
    assert ("b", 1) not in certain


HINTED = {
    "0.2::a(x); 0.8::b(x) :- c(x).": "rel 0.2::a(x); 0.8::b(x) = c(x)",
    "0.2::a(x); 0.3::b(x); 0.1::d(x) :- c(x).": "rel {0.2::a(x); 0.3::b(x); 0.1::d(x)} = c(x)",
}


def rules_for(text: str) -> list[str]:
    """The text itself where it is of the language, else the rules that its error advises."""
    if text.startswith("rel {"):
        return [text]
    with pytest.raises(dv.DerivableError) as caught:
        dv.Program(text)
    return caught.value.hint.split("`")[1::2]


@pytest.mark.parametrize("problog", HINTED)
def test_the_help_for_annotated_disjunctions_agrees_with_problog(problog):
    """Heads have other rules too, so that `not a(x)` would not be `a(x) was not chosen`."""
    from problog import get_evaluatable
    from problog.program import PrologString

    upper = problog.replace("(x)", "(X)")
    more = "0.5::a(X) :- c(X). 0.5::c(1). c(2). query(a(_)). query(b(_))."
    answers = get_evaluatable().create_from(PrologString(f"{upper} {more}")).evaluate()
    rules = rules_for(HINTED[problog])
    program = dv.Program(" ".join(["rel c = {0.5::1, 2} rel 0.5::a(x) = c(x) query a query b", *rules]))
    db = program.run(provenance="exact")
    found = {f"{name}({x})": db[name][x] for name in "ab" for (x,) in db[name]}
    assert found == pytest.approx({str(term): p for term, p in answers.items()})


@pytest.mark.parametrize(
    "clause",
    [
        "0.25::a; 0.75::b :- c.",
        "1/4::a; 3/4::b :- c, \\+ d.",
        '0.25::a; 0.75::b :- e(X, "t"), X > 3.',
        "0.25::a(); 0.75::b() :- choice1(1), c().",
        "rel {0.25::a(); 0.75::b()} = d() or choice1(_)",
        "rel {0.25::a(); 0.75::b()} = (d() or c()) and not d()",
    ],
)
def test_what_is_written_for_bodies_of_any_form_runs(clause):
    """One of the two heads holds, with its share: all else is certain."""
    rules = rules_for(clause)
    facts = 'type d() rel c() rel e = {(5, "t"), (2, "t"), (9, "u")}'
    facts += " rel choice1 = {1}" * ("choice1" in clause)
    db = dv.Program(" ".join([facts, *rules, "query a query b"])).run(provenance="exact")
    assert [db[name][()] for name in "ab"] == pytest.approx([0.25, 0.75])


SETS_OF_HEADS = {
    "{0.2::a(x); 0.9::b(x)} = c(x)": r"the 2 heads of a choice add up to 1\.1",
    "0.2::a(x); 0.9::b(x) = c(x)": "add up to more than one",
    "{0.2::a(x), 0.8::b(x, 1)} = c(x)": "separate them by `;`",
    "{0.2::a(x); b(x)} = c(x)": "give each of them a probability",
    "{b(x); 0.2::a(x)} = c(x)": "give each of them a probability",
    "{0.2::a(x)} = c(x)": "a head alone is written",
}


@pytest.mark.parametrize("rule", SETS_OF_HEADS)
def test_sets_of_heads_with_shares_lead_to_ours(rule):
    with pytest.raises(dv.DerivableError, match=SETS_OF_HEADS[rule]):
        dv.Program(f"rel c = {{1, 2}} rel {rule}")
