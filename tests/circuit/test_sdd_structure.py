"""SDD files whose nodes are no SDD: refused where truth tables say so, with an assignment that shows it."""

import re
from dataclasses import replace

import numpy as np
import pytest

from derivable.circuit.files.sdd_file import parse_sdd
from derivable.circuit.files.vtree_file import parse_vtree
from derivable.circuit.graph.builder import CircuitBuilder
from derivable.core.diagnostics import LayoutError, ParseError

VTREE = parse_vtree(b"vtree 5\nL 0 1\nL 2 2\nI 1 0 2\nL 4 3\nI 3 1 4\n")
LEAVES = "L 0 0 1\nL 1 2 2\nL 2 0 -1\nF 3\nT 4\nL 5 2 -2\nD 6 1 2 0 1 2 5\nL 7 4 3\n"


def sdd(*lines):
    return f"sdd {8 + len(lines)}\nc by hand\n{LEAVES}{chr(10).join(lines)}\n".encode()


@pytest.mark.parametrize(
    ("line", "place", "message"),
    [
        (
            "D 8 3 2 6 7 4 3",
            11,
            "not exclude each other: 6 and 4 are true in the assignment 1 2",
        ),
        ("D 8 1 2 0 1 0 5", 11, "not exclude each other: 0 and 0 are true in the assignment 1"),
        ("D 8 3 1 6 7", 11, "not exhaustive: none of them is true in the assignment 1 -2"),
        ("D 8 3 1 3 7", 11, "not exhaustive: none of them is true in every assignment"),
    ],
)
def test_primes_that_are_no_partition_are_an_error_at_the_node(line, place, message):
    with pytest.raises(ParseError) as caught:
        parse_sdd(sdd(line), "c.sdd")
    verb = "are" if "exhaustive" in message else "do"
    shown = f"c.sdd:{place}:3: error: the primes of node 8 {verb} {message}\n  {place} | {line}\n"
    assert str(caught.value).startswith(shown)
    assert parse_sdd(sdd(line), check=False).origin == ""


def test_primes_that_overlap_are_not_counted_twice():
    # (1 and 2) or (1 or 2) as primes: 3 models, while the sum over primes is 1 + 3.
    text = sdd("D 8 1 2 0 1 2 3", "D 9 1 2 0 4 2 1", "D 10 3 2 8 4 9 4")
    with pytest.raises(ParseError, match="the primes of node 10 do not exclude each other: 8 and 9 are true"):
        parse_sdd(text, vtree=VTREE)
    assert parse_sdd(sdd("D 8 3 2 6 7 6 3").replace(b"D 8 3 2 6 7 6 3", b"D 8 1 2 0 4 2 1")).model_count() == 3


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("L 7 4 3", "L 7 0 3", "node 7 is a literal of variable 3, and its vtree node 0 is the leaf of variable 1"),
        ("L 7 4 3", "L 7 3 3", "node 7 is a literal of variable 3, and its vtree node 3 is an inner node"),
        ("L 7 4 3", "L 7 4 9", "variable 9 is not in the vtree, which has 3 variables"),
        ("D 6 1", "D 6 5", "node 6 stands at vtree node 5, and the vtree has no such node"),
        ("D 6 1", "D 6 0", "node 6 is a decomposition, and its vtree node 0 is a leaf"),
        ("D 8 3 2 6 7 9 3", "D 8 3 2 6 1 9 3", "node 8 has the sub 1, which does not stand below the right child of"),
        ("D 8 3 2 6 7 9 3", "D 8 1 2 6 7 9 3", "node 8 has the prime 6, which does not stand below the left child of"),
    ],
)
def test_nodes_that_do_not_stand_where_the_vtree_lets_them(old, new, message):
    text = sdd("D 9 1 2 0 5 2 1", "D 8 3 2 6 7 9 3").decode()
    assert parse_sdd(text.encode(), vtree=VTREE).model_count() == 2
    with pytest.raises(ParseError, match=re.escape(message)):
        parse_sdd(text.replace(old, new).encode(), vtree=VTREE)


def tables(rows, num_variables):
    """Of the lines of a file: {id: truth table}, {id: variables below}, and whether ands share none, id by id."""
    worlds = np.arange(2**num_variables)
    table, scope, shared = {}, {}, set()
    for letter, name, *numbers in rows:
        if letter in "TF":
            table[name], scope[name] = np.full(len(worlds), letter == "T"), set()
        elif letter == "L":
            bit = worlds >> abs(numbers[1]) - 1 & 1
            table[name], scope[name] = bit == (numbers[1] > 0), {abs(numbers[1])}
        else:
            pairs = list(zip(numbers[2::2], numbers[3::2]))
            table[name] = np.any([table[p] & table[s] for p, s in pairs], axis=0)
            scope[name] = set().union(*(scope[p] | scope[s] for p, s in pairs))
            if any(scope[p] & scope[s] or {p, s} & shared for p, s in pairs):
                shared.add(name)
    return table, shared


def first_wrong(rows, num_variables):
    """(the first decomposition whose primes are no partition, how many of its primes are true by world), or None."""
    table, shared = tables(rows, num_variables)
    for letter, name, *numbers in rows:
        if letter == "D":
            primes = numbers[2::2]
            if shared & set(primes):
                return None  # values of what is not decomposable mean nothing
            counts = np.sum([table[prime] for prime in primes], axis=0)
            if (counts != 1).any():
                return name, counts
    return None


def damaged(seed):
    """The lines of a random SDD of PySDD over 5 variables, some of whose literals and elements are exchanged."""
    manager_of = pytest.importorskip("pysdd.sdd")
    rng = np.random.default_rng(seed)
    shape = ["balanced", "right", "left"][seed % 3]
    manager = manager_of.SddManager.from_vtree(manager_of.Vtree(var_count=5, vtree_type=shape))
    node = manager.true()
    for _ in range(6):
        clause = manager.false()
        for variable in rng.choice(5, 3, replace=False):
            clause |= manager.literal(int(variable + 1) * int(rng.choice([-1, 1])))
        node &= clause
    return rng, node


def lines_of(node, folder):
    path = folder / "node.sdd"
    node.save(bytes(path))
    return [
        [word if k == 0 else int(word) for k, word in enumerate(line.split())]
        for line in path.read_text().splitlines()
        if line[0] in "FTLD"
    ]


@pytest.mark.parametrize("seed", range(60))
def test_damaged_files_are_judged_as_truth_tables_do(seed, tmp_path):
    rng, node = damaged(seed)
    rows = lines_of(node, tmp_path)
    for _ in range(int(rng.integers(0, 3))):
        row = rows[int(rng.integers(len(rows)))]
        if row[0] == "L":
            row[3] *= -1
        elif row[0] == "D":
            place = int(rng.integers(4, len(row)))
            row[place] = int(rng.choice([r[1] for r in rows[: rows.index(row)]]))
    text = "\n".join([f"sdd {len(rows)}", *(" ".join(map(str, row)) for row in rows), ""]).encode()
    wrong = first_wrong(rows, 5)
    _, shared = tables(rows, 5)
    if wrong is None and not shared:
        circuit = parse_sdd(text, num_variables=5)
        circuit.check()
        assert circuit.model_count() == tables(rows, 5)[0][rows[-1][1]].sum()
    elif wrong is not None:
        with pytest.raises(ParseError) as caught:
            parse_sdd(text)
        name, counts = wrong
        message = str(caught.value)
        assert f"the primes of node {name} " in message
        literals = list(map(int, re.findall(r"-?\d+", message.split("assignment")[1].split("\n")[0])))
        fitting = [w for w in range(32) if all((w >> abs(v) - 1 & 1) == (v > 0) for v in literals)]
        assert (counts[fitting] > 1).all() if "exclude" in message else (counts[fitting] == 0).all()


def test_a_literal_turned_in_a_chain_of_300_variables_is_found():
    """Far beyond truth tables: parity, one element of which has its literal twice."""
    n = 300
    rows = [f"L {2 * v} {2 * v} {v + 1}\nL {2 * v + 1} {2 * v} {-v - 1}" for v in range(n)]
    yes, no = 2 * n - 2, 2 * n - 1
    name = 2 * n
    for v in range(n - 2, -1, -1):
        for first, second in ((yes, no), (no, yes)):
            rows.append(f"D {name} {2 * v + 1} 2 {2 * v} {second} {2 * v + 1} {first}")
            name += 1
        yes, no = name - 2, name - 1
    text = f"sdd {name}\n" + "\n".join(rows) + "\n"
    assert parse_sdd(text.encode()).model_count() == 2 ** (n - 1)
    prime = f"D {2 * n + 2} {2 * (n - 3) + 1} 2 {2 * (n - 3)} "
    assert prime in text
    with pytest.raises(ParseError, match=f"the primes of node {2 * n + 2} do not exclude"):
        parse_sdd(re.sub(f"({prime}\\d+) {2 * (n - 3) + 1} ", rf"\1 {2 * (n - 3)} ", text).encode())


def test_a_claim_of_determinism_is_checked():
    b = CircuitBuilder()
    either = b.disjunction([b.literal(1), b.literal(2)])
    twice = b.conjunction([b.literal(1), b.disjunction([b.literal(1), b.literal(2)])])
    with pytest.raises(LayoutError, match=r"origin 'sdd' .* or-node 2 has two children .* one assignment: 1 2"):
        b.build([either], origin="sdd").check()
    with pytest.raises(LayoutError, match=r"origin 'decision' .* and-node \d share a variable"):
        b.build([twice], origin="decision").check()
    for root in (either, twice):
        b.build([root]).check()
    replace(b.build([b.conjunction([b.literal(1), b.literal(2)])]), origin="sdd").check()
