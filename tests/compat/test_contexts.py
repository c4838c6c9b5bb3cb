"""Contexts, as programs written for scallopy use them."""

import copy
import itertools
import pickle
from datetime import datetime, timedelta

import pytest
import torch

import derivable.compat.scallopy as scallopy
from derivable.core.diagnostics import DerivableError

EDGES = [(0, 1), (1, 2), (2, 3)]
PATHS = [(a, b) for a, b in itertools.combinations(range(4), 2)]


def edge_path(provenance="unit", **options):
    ctx = scallopy.ScallopContext(provenance=provenance, **options)
    ctx.add_relation("edge", (int, int))
    ctx.add_rule("path(a, c) = edge(a, c)")
    ctx.add_rule("path(a, c) = edge(a, b), path(b, c)")
    return ctx


def test_edge_path():
    ctx = edge_path()
    ctx.add_facts("edge", EDGES)
    ctx.run()
    assert list(ctx.relation("path")) == PATHS
    assert list(ctx.relation("edge")) == EDGES
    assert list(ctx.relation("path")) == PATHS


def test_a_run_goes_on_after_facts_and_rules():
    ctx = edge_path()
    ctx.add_facts("edge", EDGES[:2])
    ctx.run()
    assert list(ctx.relation("path")) == [(0, 1), (0, 2), (1, 2)]
    ctx.add_facts("edge", EDGES[2:])
    assert len(ctx.relation("path")) == 3
    ctx.run()
    assert list(ctx.relation("path")) == PATHS
    ctx.add_rule("ends(x) = path(_, x), not edge(x, _)")
    ctx.run()
    assert list(ctx.relation("ends")) == [(3,)]


def test_a_clone_goes_its_own_way():
    ctx = edge_path()
    ctx.add_facts("edge", EDGES)
    ctx.run()
    other = ctx.clone()
    assert list(other.relation("path")) == PATHS
    other.add_facts("edge", [(3, 4)])
    other.run()
    assert len(other.relation("path")) == 10
    ctx.add_rule("start(x) = edge(x, _), not edge(_, x)")
    ctx.run()
    assert list(ctx.relation("start")) == [(0,)]
    assert list(ctx.relation("path")) == PATHS
    assert not other.has_relation("start")


def test_a_clone_after_a_rule_that_no_run_has_seen():
    ctx = edge_path()
    ctx.add_facts("edge", EDGES)
    ctx.run()
    ctx.add_rule("ends(x) = path(_, x), not edge(x, _)")
    other = ctx.clone()
    assert list(other.relation("path")) == PATHS
    assert not other.relation_is_computed("ends")
    other.run()
    assert list(other.relation("ends")) == [(3,)]


def test_a_clone_with_another_provenance_takes_the_tags():
    ctx = edge_path("diffminmaxprob")
    p = torch.tensor([0.5, 0.25, 0.75], requires_grad=True)
    ctx.add_facts("edge", list(zip(p, EDGES)))
    ctx.run()
    other = ctx.clone(provenance="minmaxprob")
    assert {row: tag for tag, row in other.relation("path")}[0, 3] == 0.25
    assert list(ctx.clone(provenance="unit").relation("path")) == PATHS


@pytest.mark.parametrize("remade", [lambda ctx: pickle.loads(pickle.dumps(ctx)), copy.deepcopy, copy.copy])
def test_a_copy_is_run_as_the_original(remade):
    ctx = edge_path("minmaxprob")
    ctx.add_facts("edge", [(0.1 * (i + 1), edge) for i, edge in enumerate(EDGES)])
    other = remade(ctx)
    ctx.run()
    other.run()
    assert list(other.relation("path")) == list(ctx.relation("path"))


def test_programs_files_and_items(tmp_path):
    path = tmp_path / "rules.scl"
    path.write_text("rel path(a, b) = edge(a, b)\nrel path(a, c) = path(a, b), edge(b, c)\n")
    ctx = scallopy.ScallopContext()
    ctx.add_program("type edge(source: i32, target: i32)\nrel edge = {(0, 1), (1, 2)}\nquery path(0, x)")
    ctx.import_file(str(path))
    assert ctx.add_item("rel far(a, c) = path(a, c), not edge(a, c)") == ["far"]
    ctx.run()
    assert list(ctx.relation("far")) == [(0, 2)]
    assert list(ctx.relation("path(0, x)")) == [(0, 1), (0, 2)]
    assert ctx.relation_field_names("edge") == ["source", "target"]
    assert ctx.relation_is_computed("far")


def test_facts_of_files(tmp_path):
    path = tmp_path / "edge.csv"
    path.write_text("0;1\n1;2\n")
    ctx = scallopy.ScallopContext()
    ctx.add_relation("edge", (int, int), load_csv=scallopy.io.CSVFileOptions(str(path), deliminator=";"))
    ctx.add_rule("back(b, a) = edge(a, b)")
    ctx.run()
    assert list(ctx.relation("back")) == [(1, 0), (2, 1)]


def test_types_of_facts():
    ctx = scallopy.ScallopContext()
    types = (int, float, str, bool, "usize", scallopy.u8)
    ctx.add_relation("row", types)
    ctx.add_facts("row", [(-1, 0.5, "a", True, 3, 255)])
    ctx.add_relation("name", str)
    ctx.add_facts("name", ["b", ("a",)])
    ctx.run()
    assert list(ctx.relation("row")) == [(-1, 0.5, "a", True, 3, 255)]
    assert list(ctx.relation("name")) == [("a",), ("b",)]
    ctx.add_relation("pair", (int, float))
    ctx.add_facts("pair", [(torch.tensor(3), torch.tensor(0.5))])
    ctx.run()
    assert list(ctx.relation("pair")) == [(3, 0.5)]
    with pytest.raises(Exception, match="u8"):
        ctx.add_facts("row", [(-1, 0.5, "a", True, 3, 256)])
    with pytest.raises(Exception, match="columns"):
        ctx.add_facts("row", [(1,)])


@pytest.mark.parametrize("provenance", ["minmaxprob", "addmultprob", "topkproofs"])
def test_probabilities(provenance):
    ctx = scallopy.ScallopContext(provenance)
    ctx.add_relation("digit_1", int)
    ctx.add_relation("digit_2", int)
    first, second = [0.1, 0.3, 0.6], [0.5, 0.2, 0.25]
    ctx.add_facts("digit_1", [(p, (i,)) for i, p in enumerate(first)])
    ctx.add_facts("digit_2", [(p, i) for i, p in enumerate(second)])
    ctx.add_rule("sum_2(a + b) = digit_1(a), digit_2(b)")
    ctx.run()
    found = {row: tag for tag, row in ctx.relation("sum_2")}
    assert set(found) == {(i,) for i in range(5)}
    for total in range(5):
        pairs = [(first[a], second[total - a]) for a in range(3) if 0 <= total - a < 3]
        if provenance == "minmaxprob":
            expected = max(min(pair) for pair in pairs)
        elif provenance == "addmultprob":
            expected = min(1.0, sum(a * b for a, b in pairs))
        else:
            expected = union(first, second, total)
        assert found[total,] == pytest.approx(expected)


def union(first, second, total):
    """The probability that some two independent facts add up to a number, by enumeration of worlds."""
    result = 0.0
    for world in itertools.product([0, 1], repeat=6):
        weight = 1.0
        for there, p in zip(world, [*first, *second]):
            weight *= p if there else 1 - p
        a, b = [i for i in range(3) if world[i]], [i for i in range(3) if world[3 + i]]
        result += weight * any(x + y == total for x in a for y in b)
    return result


def test_certain_facts_and_facts_without_tags():
    ctx = edge_path("minmaxprob")
    ctx.add_facts("edge", [(None, (0, 1)), (0.5, (1, 2))])
    ctx.add_relation("blocked", int, non_probabilistic=True)
    ctx.add_facts("blocked", [(1,)])
    ctx.add_rule("open(a, b) = path(a, b), not blocked(b)")
    ctx.run()
    assert list(ctx.relation("path")) == [(1.0, (0, 1)), (0.5, (0, 2)), (0.5, (1, 2))]
    assert list(ctx.relation("open")) == [(0.5, (0, 2)), (0.5, (1, 2))]
    with pytest.raises(Exception, match="pair"):
        ctx.add_facts("edge", [3])


def test_exclusive_facts_make_no_proof_together():
    ctx = scallopy.ScallopContext("topkproofs", k=9)
    ctx.add_relation("digit", (int, int))
    facts = [(p, (i, value)) for i in range(2) for value, p in enumerate([0.2, 0.5, 0.3])]
    ctx.add_facts("digit", facts, disjunctions=[[0, 1, 2], [3, 4, 5]])
    ctx.add_rule("both(x) = digit(x, 0), digit(x, 1)")
    ctx.add_rule("sum(a + b) = digit(0, a), digit(1, b)")
    ctx.run()
    assert list(ctx.relation("both")) == []
    found = {row[0]: tag for tag, row in ctx.relation("sum")}
    p = [0.2, 0.5, 0.3]
    for total in range(5):
        expected = sum(p[a] * p[total - a] for a in range(3) if 0 <= total - a < 3)
        assert found[total] == pytest.approx(expected)


def test_tagged_rules():
    ctx = scallopy.ScallopContext("minmaxprob")
    ctx.add_relation("speaks", (str, str))
    ctx.add_facts("speaks", [(None, ("a", "zh")), (0.3, ("b", "zh"))])
    ctx.add_rule('born(a, "cn") = speaks(a, "zh")', tag=0.8)
    ctx.run()
    assert list(ctx.relation("born")) == [(0.8, ("a", "cn")), (0.3, ("b", "cn"))]


def test_the_tag_of_a_rule_is_one_fact():
    p = torch.tensor(0.3, requires_grad=True)
    for provenance, tag in (("topkproofs", 0.3), ("topkproofs", (0.3, None)), ("difftopkproofs", p)):
        ctx = scallopy.ScallopContext(provenance)
        ctx.add_program("rel e = {(0, 1), (0, 2)}")
        ctx.add_rule("h(x) = e(x, y) or e(y, x)", tag=tag)
        ctx.add_rule("fact(7)", tag=tag)
        ctx.run()
        found = {row: torch.as_tensor(one).item() for one, row in ctx.relation("h")}
        assert found == {(i,): pytest.approx(0.3) for i in range(3)}
        assert [row for _, row in ctx.relation("fact")] == [(7,)]
        assert "rule_tag_1" not in ctx.relations()


def test_tropical_tags_are_lengths():
    ctx = edge_path("tropical")
    ctx.add_facts("edge", [(3, (0, 1)), (4, (1, 2)), (9, (0, 2)), (None, (2, 3))])
    ctx.run()
    found = {row: tag for tag, row in ctx.relation("path")}
    assert found[0, 2] == 7
    assert found[2, 3] == 0
    assert all(isinstance(tag, int) for tag in found.values())


@pytest.mark.parametrize(
    ("body", "limit", "distance"),
    [
        # Scallop swaps the columns of path in a round of its own, to join it on the second.
        *(("path(a, b) and edge(b, c)", limit, distance) for limit, distance in ((0, 1), (1, 1), (2, 2), (5, 3))),
        *(("edge(a, b) and path(b, c)", limit, distance) for limit, distance in ((0, 1), (1, 2), (2, 3))),
        ("path(a, b) and edge(b, c)", None, 9),
    ],
)
def test_iteration_limit(body, limit, distance):
    ctx = scallopy.ScallopContext()
    ctx.add_relation("edge", (int, int))
    ctx.add_rule(f"path(a, c) = edge(a, c) or {body}")
    ctx.add_facts("edge", [(i, i + 1) for i in range(9)])
    ctx.set_iter_limit(1)
    ctx.set_iter_limit(limit)
    ctx.run()
    assert list(ctx.relation("path")) == [(i, j) for i in range(9) for j in range(i + 1, 10) if j - i <= distance]


def test_dates_and_durations():
    ctx = scallopy.ScallopContext()
    ctx.add_relation("event", ("DateTime", "Duration"))
    ctx.add_facts("event", [("2024-01-30", "3d"), ("2024-02-28T12:00:00Z", "1 day")])
    ctx.add_rule("end(a + b, $datetime_month(a + b)) = event(a, b)")
    ctx.run()
    assert list(ctx.relation("end")) == [(datetime(2024, 2, 2), 2), (datetime(2024, 2, 29, 12), 2)]
    assert {d for _, d in ctx.relation("event")} == {timedelta(days=3), timedelta(days=1)}


def test_facts_that_are_no_terms_are_dropped():
    ctx = scallopy.ScallopContext("minmaxprob")
    ctx.add_relation("early", scallopy.Entity)
    with pytest.warns(UserWarning, match="no terms"):
        ctx.add_facts("early", [(0.5, "Leaf()")])
    ctx.add_program("type Tree = Leaf() | Node(Tree, i32)")
    ctx.add_relation("tree", (int, scallopy.Entity))
    ctx.add_rule("value(i, n) = tree(i, t), case t is Node(_, n)")
    wrong = ["Node(Leaf())", "Bush()", "Node(Leaf(), x)"]
    given = [(0.1 * i, (i, text)) for i, text in enumerate(["Leaf()", *wrong, "Node(Leaf(), 7)"], 1)]
    with pytest.warns(UserWarning, match="tree"):
        ctx.add_facts("tree", given)
    ctx.run()
    assert len(ctx.relation("early")) == 0
    assert [row[0] for _, row in ctx.relation("tree")] == [1, 5]
    assert list(ctx.relation("value")) == [(0.5, (5, 7))]


def test_demand():
    ctx = scallopy.ScallopContext()
    ctx.add_program("type fib(bound n: i32, v: i32)\nrel fib = {(0, 1), (1, 1)}")
    ctx.add_rule("fib(n, a + b) = fib(n - 1, a), fib(n - 2, b), n > 1", demand="bf")
    ctx.add_program("query fib(10, y)")
    ctx.run()
    assert list(ctx.relation("fib(10, y)")) == [(10, 89)]


@pytest.mark.parametrize("provenance", ["diffminmaxprob", "diffaddmultprob", "diffmaxmultprob", "difftopkproofs"])
def test_gradients_of_relations(provenance):
    """By finite differences; each tag is differentiated alone, and twice."""
    start = torch.tensor([0.4, 0.7, 0.2], dtype=torch.float64)

    def tags(p):
        ctx = edge_path(provenance)
        ctx.add_facts("edge", list(zip(p, [(0, 1), (1, 2), (0, 2)])))
        ctx.run()
        return {row: tag for tag, row in ctx.relation("path")}

    p = start.clone().requires_grad_()
    found = tags(p)
    for row, tag in found.items():
        p.grad = None
        tag.backward()
        tag.backward()
        assert p.grad is not None
        for i in range(3):
            step = torch.zeros(3, dtype=torch.float64)
            step[i] = 1e-3
            expected = float(tags(start + step)[row].detach() - tags(start - step)[row].detach()) / 2e-3
            assert float(p.grad[i]) / 2 == pytest.approx(expected, abs=1e-3)


def test_second_derivatives_of_tags():
    p = torch.tensor([0.4, 0.7], dtype=torch.float64, requires_grad=True)
    ctx = edge_path("difftopkproofs")
    ctx.add_facts("edge", list(zip(p, [(0, 1), (1, 2)])))
    ctx.run()
    tag = {row: tag for tag, row in ctx.relation("path")}[0, 2]
    (first,) = torch.autograd.grad(tag, p, create_graph=True)
    assert first.tolist() == pytest.approx([0.7, 0.4])
    (second,) = torch.autograd.grad(first[0], p)
    assert second.tolist() == pytest.approx([0.0, 1.0])


def test_tags_without_gradients_are_leaves():
    ctx = edge_path("difftopkproofs")
    ctx.add_facts("edge", [(torch.tensor(0.5), (0, 1)), (None, (1, 2))])
    ctx.run()
    for tag, _ in ctx.relation("path"):
        assert tag.requires_grad
        tag.backward()


def test_proofs_of_the_debug_provenance():
    ctx = edge_path("difftopkproofsdebug")
    p = torch.tensor([0.5, 0.5, 0.25], requires_grad=True)
    ids = [11, 22, 33]
    ctx.add_facts("edge", [((p[i], ids[i]), edge) for i, edge in enumerate([(0, 1), (1, 2), (0, 2)])])
    ctx.run()
    found = {row: given for given, row in ctx.relation("path")}
    tag, proofs = found[0, 2]
    assert tag.item() == pytest.approx(1 - (1 - 0.25) * (1 - 0.25))
    assert sorted(proofs) == [[(True, 11), (True, 22)], [(True, 33)]]


def test_batches_of_runs():
    ctx = edge_path()
    ctx.add_facts("edge", [(0, 1)])
    samples = [[(1, 2)], [(5, 0)], []]
    found = ctx.run_batch({"edge": samples}, "path")
    assert [list(one) for one in found] == [[(0, 1), (0, 2), (1, 2)], [(0, 1), (5, 0), (5, 1)], [(0, 1)]]
    ctx = edge_path("topkproofs")
    found = ctx.run_batch({"edge": [([(0.5, (0, 1)), (0.5, (0, 2))], [[0, 1]])]}, ["path"])
    assert list(found[0]) == [(0.5, (0, 1)), (0.5, (0, 2))]
    with pytest.raises(Exception, match="Inconsistency in batch size"):
        ctx.run_batch({"edge": [[]], "path": [[], []]}, "path")


def test_what_a_context_knows():
    ctx = edge_path("topkproofs")
    assert ctx.relations() == ["edge", "path"]
    assert ctx.num_relations() == 2
    assert ctx.has_relation("edge")
    assert not ctx.has_relation("edges")
    assert ctx.requires_tag()
    assert ctx.is_probabilistic()
    assert ctx.supports_disjunctions()
    assert not scallopy.ScallopContext("diffminmaxprob").supports_disjunctions()
    assert not scallopy.ScallopContext().requires_tag()
    assert "path" in ctx.get_front_ir()
    ctx.compile()


def test_errors_leave_the_context_as_it_is():
    ctx = edge_path()
    ctx.add_facts("edge", EDGES)
    for wrong in ("far(a, b) = edge(a, _)", "far(a = edge(a, b)", "far(a) = edge(a)"):
        with pytest.raises(DerivableError):
            ctx.add_rule(wrong)
    with pytest.raises(DerivableError, match="Unknown relation `edg`"):
        ctx.add_facts("edg", EDGES)
    with pytest.raises(DerivableError, match="Unknown relation"):
        ctx.set_non_probabilistic("edg")
    with pytest.raises(DerivableError, match="not computed"):
        ctx.relation("path")
    with pytest.raises(DerivableError, match="provenance"):
        scallopy.ScallopContext("minmaxprop")
    with pytest.raises(DerivableError, match="forward_function"):
        ctx.forward_function("path")
    for register in (ctx.register_foreign_function, ctx.register_foreign_predicate, ctx.register_foreign_attribute):
        with pytest.raises(DerivableError, match="decorated"):
            register(len)
    ctx.run()
    assert list(ctx.relation("path")) == PATHS


def test_proofs():
    ctx = scallopy.ScallopContext("proofs")
    ctx.add_relation("digit", (int, int))
    ctx.add_facts("digit", [(0, 1), (0, 2), (1, 1)], disjunctions=[[0, 1]])
    ctx.add_rule("sum(a + b) = digit(0, a), digit(1, b)")
    ctx.add_rule("both() = digit(0, 1), digit(0, 2)")
    ctx.run()
    # Without the proofs, as Scallop shows it.
    assert list(ctx.relation("sum")) == [(2,), (3,)]
    assert list(ctx.relation("both")) == []


@pytest.mark.parametrize(
    "provenance",
    [
        *("diffnandmultprob", "diffnandminprob", "diffsamplekproofs", "difftopbottomkclauses"),
        *("diffaddmultprob2", "diffnandmultprob2", "diffmaxmultprob2", "topbottomkclauses", "natural", "bool"),
    ],
)
def test_further_provenances_run(provenance):
    ctx = edge_path(provenance, k=5)
    number = 1 if provenance in ("natural", "bool") else 0.5
    tag = torch.tensor(number) if provenance.startswith("diff") else number
    ctx.add_facts("edge", [(tag, edge) for edge in EDGES])
    ctx.run()
    expected = {"natural": 1, "bool": True, "diffmaxmultprob2": 0.125, "diffnandminprob": 0.5}.get(provenance, 0.125)
    assert {row: torch.as_tensor(tag).item() for tag, row in ctx.relation("path")}[0, 3] == expected


def test_natural_tags_count_derivations_by_rounds():
    """As Scallop's rounds do, on a cycle too: each tuple passes on the number that it had when it was new.

    (0, 2) is new with 1, has 2 * 3 more in the second round, in which (2, 2) is new with 1 * 1, and 1 * 1 more by that
    in the third.
    """
    ctx = edge_path("natural")
    ctx.add_facts("edge", [(2, (0, 1)), (3, (1, 2)), (1, (0, 2)), (1, (2, 0))])
    ctx.run()
    found = {row: tag for tag, row in ctx.relation("path")}
    assert found[0, 2] == 1 + 2 * 3 + 1
    assert all(isinstance(tag, int) for tag in found.values())


def test_proofs_with_negative_literals_come_by_probability():
    ctx = scallopy.ScallopContext("difftopkproofsdebug", k=20)
    ctx.add_relation("a", int)
    ctx.add_relation("b", int)
    ctx.add_rule("c() = a(x), not b(x)")
    ctx.add_facts("a", [((torch.tensor(0.5), 1), (0,)), ((torch.tensor(0.75), 2), (1,))])
    ctx.add_facts("b", [((torch.tensor(0.5), 3), (0,)), (None, (2,))])
    ctx.run()
    (((tag, proofs), _),) = ctx.relation("c")
    assert proofs == [[(True, 2)], [(True, 1), (False, 3)]]
    assert tag.item() == pytest.approx(1 - 0.25 * 0.75)


def test_a_run_of_proofs_is_one_run(monkeypatch):
    """It grounds nothing, and what is read of it is not computed anew."""
    from derivable.compat.scallopy import machine
    from derivable.nn.batch import BatchLogic

    derived = []
    run = BatchLogic._derived

    def counted(self, *arguments):
        derived.append(arguments)
        return run(self, *arguments)

    monkeypatch.setattr(machine, "Ground", None)
    monkeypatch.setattr(BatchLogic, "_derived", counted)
    ctx = scallopy.ScallopContext(provenance="difftopkproofs", k=3)
    ctx.add_relation("edge", (int, int))
    ctx.add_rule("path(a, b) = edge(a, b) or path(a, c) and edge(c, b)")
    p = torch.tensor([0.5, 0.8, 0.3], requires_grad=True)
    ctx.add_facts("edge", list(zip(p, [(0, 1), (1, 2), (0, 2)])))
    ctx.run()
    assert len(list(ctx.relation("edge"))) == 3
    found = {row: tag for tag, row in ctx.relation("path")}
    assert found[0, 2].item() == pytest.approx(1 - 0.7 * 0.6)
    found[0, 2].backward()
    assert p.grad.tolist() == pytest.approx([0.7 * 0.8, 0.7 * 0.5, 0.6])
    assert len(derived) == 1


@pytest.mark.parametrize("provenance", ["unit", "difftopkproofs"])
def test_evidence_is_refused_with_who_takes_it(provenance):
    ctx = scallopy.ScallopContext(provenance=provenance)
    ctx.add_relation("calls", (str,))
    ctx.add_rule("alarm() = calls(_)")
    with pytest.raises(DerivableError, match=r"a context takes no evidence, .*`evidence not alarm\(\)`") as caught:
        ctx.add_program("evidence not alarm()")
    assert "dv.Program(text).run()" in caught.value.hint
    assert 'provenance="exact"' in caught.value.hint
    assert caught.value.span.length > 0
