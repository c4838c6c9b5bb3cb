"""Tags in rounds on Sail: those of one machine, of semirings that are built in and of one's own."""

import math
import operator
import random

import networkx as nx
import numpy as np
import pytest

import derivable as dv
from datalog.distribution.engines import needs_sail, sail
from datalog.distribution.test_rounds import SAME, TRANSITIVE, in_rounds
from derivable.algebra import Semiring
from derivable.algebra.expr import maximum, minimum, where
from derivable.core.diagnostics import UnsupportedError

pytestmark = [
    needs_sail,
    pytest.mark.filterwarnings("ignore::derivable.DerivableWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]
EDGE = "type edge(x: i64, y: i64) "
LINEAR = EDGE + "rel path(x, y) = edge(x, y) rel path(x, z) = path(x, y), edge(y, z) "
# Walks of even and of odd length in one recursion, what follows from them, and rules without a recursion.
MUTUAL = EDGE + (
    "rel odd(x, y) = edge(x, y) rel even(x, z) = odd(x, y), edge(y, z) rel odd(x, z) = even(x, y), edge(y, z) "
    "rel from(x) = odd(x, _) rel from(x) = even(x, _) rel two(x, z) = edge(x, y), edge(y, z) "
    "rel two(x, x) = edge(x, _) rel any() = two(_, _) query from query two query any"
)
CHOOSING = {"idempotent_plus": True, "selective_plus": True, "absorptive": True}
OWN = [
    Semiring("lukasiewicz", maximum, lambda a, b: maximum(a + b - 1, 0), 0.0, 1.0, domain=(0.0, 1.0), **CHOOSING),
    Semiring("least", lambda a, b: where(b < a, b, a), operator.add, math.inf, 0.0, domain=(0.0, math.inf), **CHOOSING),
    Semiring("bottleneck", maximum, minimum, -math.inf, math.inf, **CHOOSING),
    Semiring("doubled", operator.add, operator.mul, 0.0, 1.0, fact=lambda tag, variable: 2 * tag),
]
SEMIRINGS = ["real", "counting", "log", "bool", "nandmultprob", "nandminprob", *OWN]


def acyclic(semiring, seed=0):
    """Edges from lower to higher numbers, with tags of a semiring."""
    numbers = random.Random(seed)
    pairs = {tuple(sorted(numbers.sample(range(8), 2))) for _ in range(16)}
    values = {"real": [-1.0, 0.5, 2.0, 0.0], "counting": [0, 1, 2, 3], "bool": [0.0, 1.0]}
    return {pair: numbers.choice(values.get(semiring, [0.2, 0.5, 0.75, 0.9])) for pair in sorted(pairs)}


def frame_of(facts):
    return sail().createDataFrame(
        [(x, y, float(tag)) for (x, y), tag in facts.items()], "x bigint, y bigint, tag double"
    )


def check(text, facts, provenance):
    """Compare rounds with one machine, for facts of this process and those of the engine."""
    program = dv.Program(text)
    expected = program.run({"edge": facts}, provenance)
    for given in (facts, frame_of(facts)):
        found = in_rounds(program, {"edge": given}, provenance)
        assert found.keys() == expected.keys()
        for output, rows in found.items():
            assert rows == pytest.approx(dict(expected[output].items()), rel=1e-12, abs=1e-12), output
            assert {type(tag) for tag in rows.values()} <= {type(tag) for tag in expected[output].values()}


@pytest.mark.parametrize("semiring", SEMIRINGS, ids=lambda one: getattr(one, "name", one))
def test_semirings(semiring):
    check(MUTUAL, acyclic(semiring), semiring)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "text", [LINEAR + "query path", TRANSITIVE.replace("usize", "i64"), SAME.replace("usize", "i64")]
)
@pytest.mark.parametrize("semiring", [*SEMIRINGS, "addmultprob", "godel"], ids=lambda one: getattr(one, "name", one))
def test_semirings_on_other_graphs(semiring, text, seed):
    check(text, acyclic(semiring, seed + 1), semiring)


def test_walks_are_counted_as_by_networkx_and_by_inversion():
    graph = nx.gnp_random_graph(18, 0.4, seed=1, directed=True)
    pairs = [(x, y) for x, y in graph.edges if x < y]
    program = dv.Program(LINEAR + "query path")
    counts = in_rounds(program, {"edge": pairs}, "counting")["path"]
    dag = nx.DiGraph(pairs)
    assert counts[0, 17] == sum(1 for _ in nx.all_simple_paths(dag, 0, 17))
    weights = {pair: 0.1 + 0.05 * (sum(pair) % 7) for pair in pairs}
    matrix = np.zeros((18, 18))
    for pair, weight in weights.items():
        matrix[pair] = weight
    closed = np.linalg.inv(np.eye(18) - matrix) - np.eye(18)
    found = in_rounds(program, {"edge": frame_of(weights)}, "real")["path"]
    assert found == pytest.approx({pair: closed[pair] for pair in counts}, rel=1e-12)


@pytest.mark.parametrize("semiring", ["real", "counting", "log"])
def test_infinitely_many_derivations(semiring):
    """They are refused where an output has them, and change nothing elsewhere."""
    weight = 1 if semiring == "counting" else 0.5
    facts = dict.fromkeys([(0, 1), (1, 2), (0, 2), (5, 6), (6, 5), (6, 7)], weight)
    program = dv.Program(LINEAR + "rel end(y) = path(0, y) query end query path")
    expected = dv.Program(LINEAR + "rel end(y) = path(0, y) query end").run({"edge": facts}, semiring)["end"]
    assert in_rounds(program, {"edge": facts}, semiring, ["end"])["end"] == pytest.approx(dict(expected.items()))
    assert len(expected) == 2
    for run in (
        lambda: in_rounds(program, {"edge": facts}, semiring, ["path"]),
        lambda: program.run({"edge": facts}, semiring),
    ):
        with pytest.raises(UnsupportedError, match="infinitely many derivations to add up in"):
            run()


def test_counts_beyond_64_bits():
    """2^62 walks are counted, 2^93 are an error, but not where nobody looks at them."""
    program = dv.Program(LINEAR + "rel end(y) = path(0, y), y < 3 query end query path")
    facts = {(0, 1): 2**31, (1, 2): 2**31, (2, 3): 2**31}
    expected = {(1,): 2**31, (2,): 2**62}
    assert in_rounds(program, {"edge": facts}, "counting", ["end"]) == {"end": expected}
    with pytest.raises(UnsupportedError, match="beyond 9223372036854775807"):
        in_rounds(program, {"edge": facts}, "counting", ["path"])


def test_products_do_not_vanish():
    program = dv.Program(EDGE + "rel two(x, z) = edge(x, y), edge(y, z) query two")
    facts = {(0, 1): 1e-200, (1, 2): -1e-200, (0, 3): 2.0, (3, 4): 3.0, (0, 5): 1.0, (5, 4): -6.0}
    assert in_rounds(program, {"edge": facts}, "real") == {
        "two": dict(program.run({"edge": facts}, "real")["two"].items())
    }


@pytest.mark.parametrize(
    ("semiring", "reason"),
    [
        (
            Semiring("hypotenuse", lambda a, b: (a * a + b * b) ** 0.5, operator.mul, 0.0, 1.0, domain=(0, math.inf)),
            "is no aggregate",
        ),
        (Semiring("numbered", operator.add, operator.mul, 0.0, 1.0, fact=lambda tag, v: tag * (v + 1)), "which fact"),
        (Semiring("pairs", lambda a, b: a, lambda a, b: a, (0.0, 0.0), (1.0, 1.0), fact=lambda t, v: (t, t)), "nests"),
        (Semiring("shown", operator.add, operator.mul, 0.0, 1.0, show=lambda a: -a), "functions of its own"),
        (
            Semiring("near", operator.add, operator.mul, 0.0, 1.0, saturated=lambda a, b: a > 0.9 * b),
            "when a row tells nothing new",
        ),
        (Semiring("powers", maximum, lambda a, b: a**b, 0.0, 1.0, **CHOOSING), "`power` of float64"),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_semirings_that_are_refused(semiring, reason):
    with pytest.raises(UnsupportedError, match=f"neither in rounds, as .*{reason}"):
        dv.Program(SAME).run({"edge": frame_of({(0, 1): 0.5})}, semiring, engine="sail")["same"]


@pytest.mark.parametrize(
    "semiring",
    ["real", "counting", "log", "bool", "nandmultprob", "min_plus", *OWN],
    ids=lambda one: getattr(one, "name", one),
)
def test_tags_of_several_partitions_are_added_up(semiring, tmp_path):
    """In the engine, and on disk."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    program = dv.Program(LINEAR + "rel end(y) = path(_, y) rel any() = path(_, _) query end query any")
    facts = acyclic(semiring)
    expected = program.run({"edge": facts}, semiring)
    rows = {"x": [x for x, _ in facts], "y": [y for _, y in facts], "tag": [float(tag) for tag in facts.values()]}
    pq.write_table(pa.table(rows), tmp_path / "edge.parquet")
    in_engine = program.run({"edge": frame_of(facts)}, semiring, engine="sail", partitions=3)
    on_disk = program.run({"edge": tmp_path / "edge.parquet"}, semiring, spill=tmp_path / "runs")
    for output in ("end", "any"):
        assert f"output {output}: partitions, scattered, and merged" in in_engine.explain()
        for database in (in_engine, on_disk):
            assert dict(database[output].items()) == pytest.approx(dict(expected[output].items()), rel=1e-12)


def test_sums_of_partitions_beyond_64_bits(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    program = dv.Program(LINEAR + "rel end(y) = path(_, y) query end")
    facts = {(x, 9): 2.0**62 for x in range(4)}
    with pytest.raises(dv.DerivableError, match="64 bits with a sign"):
        program.run({"edge": frame_of(facts)}, "counting", engine="sail", partitions=3)["end"].to_arrow()
    pq.write_table(pa.table({"x": range(4), "y": [9] * 4, "tag": [2.0**62] * 4}), tmp_path / "edge.parquet")
    with pytest.raises(dv.DerivableError, match="integers of 64 bits"):
        program.run({"edge": tmp_path / "edge.parquet"}, "counting", spill=tmp_path / "runs")
