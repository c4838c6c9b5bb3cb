"""Every format keeps the Boolean function and the hash-consed circuit; real files agree with other programs."""

import gzip
import os
import re
import time
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from circuit.random_circuits import (
    AND,
    LITERAL,
    OR,
    assert_same_circuit,
    assert_same_structure,
    random_arrays,
    root_tables,
    truth_tables,
)
from data import data_path
from derivable.circuit import load
from derivable.circuit.files import sdd_file
from derivable.circuit.files.nnf_file import parse_nnf, write_nnf
from derivable.circuit.files.sdd_file import load_sdd, parse_sdd, write_sdd
from derivable.circuit.files.store import parse, save
from derivable.circuit.graph.builder import CircuitBuilder, circuit_from_arrays
from derivable.core.diagnostics import ParseError, UnsupportedError


def random_circuit(seed, num_variables=5, num_inner=30, num_roots=1, local=None):
    rng = np.random.default_rng(seed)
    arrays = random_arrays(rng, num_variables, num_inner, local=local)
    roots = rng.integers(0, len(arrays[0]), num_roots)
    return circuit_from_arrays(*arrays, roots, num_variables), truth_tables(*arrays, num_variables)[roots]


def model_count(circuit):
    """Exact, by counting over each node's variable set; for decomposable deterministic circuits."""
    counts, scopes = [], []
    for node in range(circuit.num_nodes):
        row = circuit.children[circuit.offsets[node] : circuit.offsets[node + 1]].tolist()
        kind = circuit.kind[node]
        if kind <= LITERAL:
            scopes.append(frozenset([abs(int(circuit.literal[node]))] if kind == LITERAL else []))
            counts.append(0 if kind == 0 else 1)
            continue
        scope = frozenset().union(*(scopes[child] for child in row))
        if kind == AND:
            assert len(scope) == sum(len(scopes[child]) for child in row)
            count = 1
            for child in row:
                count *= counts[child]
        else:
            count = sum(counts[child] << (len(scope) - len(scopes[child])) for child in row)
        scopes.append(scope)
        counts.append(count)
    root = int(circuit.roots[0])
    return counts[root] << (circuit.num_variables - len(scopes[root]))


ROUND_TRIPS = settings(max_examples=40, deadline=None)


@pytest.mark.parametrize("dialect", ["d4", "c2d"])
@ROUND_TRIPS
@given(seed=st.integers(0, 2**32), num_inner=st.integers(0, 40), local=st.sampled_from([None, 4]))
def test_nnf_round_trip(tmp_path_factory, dialect, seed, num_inner, local):
    circuit, expected = random_circuit(seed, 5, num_inner, local=local)
    path = tmp_path_factory.mktemp("nnf") / "c.nnf"
    write_nnf(circuit, path, dialect)
    back = load(path, num_variables=5)
    back.check()
    np.testing.assert_array_equal(root_tables(back), expected)
    assert_same_structure(circuit, back)
    if dialect == "c2d":
        assert load(path).num_variables == 5


@ROUND_TRIPS
@given(seed=st.integers(0, 2**32), num_inner=st.integers(0, 40), num_roots=st.integers(0, 4))
def test_own_format_round_trip(tmp_path_factory, seed, num_inner, num_roots):
    circuit, expected = random_circuit(seed, 5, num_inner, num_roots)
    path = tmp_path_factory.mktemp("dvc") / "c.dvc"
    circuit.save(path)
    back = load(path)
    back.check()
    assert_same_circuit(circuit, back)
    np.testing.assert_array_equal(root_tables(back), expected)
    save(back, path.with_name("again.dvc"))
    assert path.read_bytes() == path.with_name("again.dvc").read_bytes()


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32), num_inner=st.integers(1, 25))
def test_sdd_round_trip(tmp_path_factory, seed, num_inner):
    """Compiling to an SDD keeps the function, and an SDD written again under its vtree is the same SDD."""
    circuit, expected = random_circuit(seed, 4, num_inner)
    path = tmp_path_factory.mktemp("sdd") / "c.sdd"
    write_sdd(circuit, path)
    back = load(path)
    back.check()
    assert back.vtree is not None
    assert back.vtree.variable_order.tolist() == [1, 2, 3, 4]
    assert back.origin == "sdd"
    np.testing.assert_array_equal(root_tables(back), expected)
    write_sdd(back, path)
    assert_same_structure(load(path), back)


def test_own_format_keeps_everything(tmp_path):
    circuit = load_sdd(data_path("circuits/sudoku_4.sdd.gz"))
    weights = np.linspace(0, 1, 64), np.linspace(1, 0, 64)
    names = tuple(f"v{i}" for i in range(64))
    for name, value in (("weights", weights), ("names", names)):
        object.__setattr__(circuit, name, value)
    circuit.save(tmp_path / "c.dvc")
    back = load(tmp_path / "c.dvc")
    assert_same_circuit(circuit, back)
    np.testing.assert_array_equal(back.weights, weights)
    assert back.names == names
    assert back.origin == "sdd"
    assert back.vtree.text() == circuit.vtree.text()


def test_formats_are_found_by_content_and_through_gzip(tmp_path):
    circuit, _ = random_circuit(3)
    write_nnf(circuit, tmp_path / "a.nnf", "d4")
    write_nnf(circuit, tmp_path / "b.nnf", "c2d")
    write_sdd(circuit, tmp_path / "c.sdd")
    circuit.save(tmp_path / "d.dvc")
    expected = root_tables(circuit)
    for name in ("a.nnf", "b.nnf", "c.sdd", "d.dvc"):
        content = (tmp_path / name).read_bytes()
        for other in (f"{name}.gz", f"plain-{name[0]}", f"zipped-{name[0]}.txt"):
            zipped = not other.startswith("plain")
            (tmp_path / other).write_bytes(gzip.compress(content) if zipped else content)
            np.testing.assert_array_equal(root_tables(load(tmp_path / other, num_variables=5)), expected)


# Oddities that files in the wild have.

C2D = "nnf 5 4 2\nL 1\nL -1\nL 2\nO 1 2 0 1\nA 2 3 2\n"
D4 = "o 1 0\nt 2 0\na 3 0\n1 3 0\n3 2 2 0\n3 4 0\no 4 0\n4 2 1 0\n4 2 -1 0\n"


@pytest.mark.parametrize("text", [C2D, D4])
@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace("\n", "\r\n"),
        lambda text: text.replace("\n", "\r"),
        lambda text: text.replace("\n", "\n\n  \n"),
        lambda text: text.replace("\n", "\nc a comment of o 1 0\nc\n"),
        lambda text: "c first\n" + text.rstrip("\n"),
        lambda text: text.replace(" ", " \t ").replace("\n", "  \n"),
        lambda text: "\n".join("  " + line for line in text.split("\n")),
        lambda text: text + "\x1a",
    ],
    ids=["crlf", "cr", "blank", "comments", "no-newline", "tabs", "indented", "dos-eof"],
)
def test_text_oddities(text, change):
    assert_same_circuit(parse_nnf(change(text).encode()), parse_nnf(text.encode()))


def random_sdd_text(rng, lines, variables, local, shuffled):
    """Lines in the format of SDD files, not of an SDD: repeats, constants, and wide and narrow decompositions."""
    ids = rng.permutation(lines) if shuffled else np.arange(lines)
    rows = [f"sdd {lines}"]
    for line in range(lines):
        kind = rng.choice(["D", "D", "D", "L", "F", "T"]) if line else "L"
        if kind == "L":
            rows.append(f"L {ids[line]} 0 {rng.integers(1, variables + 1) * rng.choice([-1, 1])}")
        elif kind == "D":
            size = rng.choice([1, 2, 2, 3, 5, 20, 70])
            elements = ids[rng.integers(0 if local is None else max(0, line - local), line, 2 * size)]
            rows.append(f"D {ids[line]} 1 {size} {' '.join(map(str, elements))}")
        else:
            rows.append(f"{kind} {ids[line]}")
    return "\n".join(rows) + "\n"


def obvious_sdd(text):
    """The circuit of such lines as an NNF: an AND for each element, an OR for each decomposition."""
    kind, literal, sizes, children, node_of = [], [], [], [], {}
    for row in text.split("\n")[1:]:
        letter, *numbers = row.split() or " "
        if letter == "D":
            first = len(kind)
            elements = [node_of[int(child)] for child in numbers[3:]]
            kind += [AND] * (len(elements) // 2) + [OR]
            sizes += [2] * (len(elements) // 2) + [len(elements) // 2]
            children += [*elements, *range(first, len(kind) - 1)]
        elif letter in "FTL":
            kind.append("FTL".index(letter))
            sizes.append(0)
        else:
            continue
        literal += [0] * (len(kind) - 1 - len(literal)) + [int(numbers[2]) if letter == "L" else 0]
        node_of[int(numbers[0])] = len(kind) - 1
    offsets = np.cumsum([0, *sizes])
    return circuit_from_arrays(
        np.array(kind, np.uint8), literal, offsets, np.array(children, int), [len(kind) - 1], None
    )


SDD_CHANGES = {
    "none": lambda text: text,
    "crlf": lambda text: text.replace("\n", "\r\n"),
    "cr": lambda text: text.replace("\n", "\r"),
    "comments": lambda text: "c first\n" + text.replace("\n", "\nc D 1 2\n\n"),
    "tabs": lambda text: text.replace(" ", "\t"),
    "blanks": lambda text: text.replace(" 1", "  1").replace("\n", " \t\n"),
    "zeros": lambda text: text.replace(" 1", " 00000001"),
    "cut": lambda text: text.rstrip("\n"),
}


@ROUND_TRIPS
@given(
    seed=st.integers(0, 2**32),
    lines=st.integers(1, 120),
    variables=st.integers(1, 5),
    local=st.sampled_from([None, 3, 20]),
    change=st.sampled_from(sorted(SDD_CHANGES)),
)
def test_sdd_lines_and_the_general_insertion_agree(seed, lines, variables, local, change):
    """Same nodes in the same order, whatever separates the words, and however few bytes are read at a time."""
    rng = np.random.default_rng(seed)
    text = random_sdd_text(rng, lines, variables, local, bool(seed % 2))
    expected = obvious_sdd(text)
    expected.check()
    data = SDD_CHANGES[change](text).encode()
    assert_same_circuit(parse_sdd(data, check=False), expected)
    step = sdd_file._STEP
    try:
        sdd_file._STEP = int(rng.integers(1, 200))
        assert_same_circuit(parse_sdd(data, check=False), expected)
    finally:
        sdd_file._STEP = step


def test_a_decomposition_is_found_again_right_after_it_was_made():
    """New or-nodes wait before they enter the table; equal ones, in any order of elements, may come at once."""
    rng = np.random.default_rng(0)
    rows = [f"L {i} 0 {i + 1}" for i in range(12)] + ["F 12"]
    pairs = [(i, j) for i in range(12) for j in range(i)]
    rng.shuffle(pairs)
    count, different, parts = 13, 0, []
    while pairs:
        size = int(rng.integers(2, 5))
        row, pairs = pairs[:size], pairs[size:]
        for _ in range(int(rng.integers(1, 4))):
            order = [row[i] for i in rng.permutation(len(row))] + [(0, 12)] * int(rng.integers(0, 2))
            rows.append(f"D {count} 0 {len(order)} " + " ".join(f"{p} {s}" for p, s in order))
            parts.append(count)
            count += 1
        different += len(row) > 1
    rows.append(f"D {count} 0 {len(parts)} " + " ".join(f"{part} {i % 12}" for i, part in enumerate(parts)))
    text = f"sdd {len(rows)}\n" + "\n".join(rows)
    circuit = parse_sdd(text.encode(), check=False)
    assert_same_circuit(circuit, obvious_sdd(text))
    sizes = np.diff(circuit.offsets)
    assert (sizes[circuit.kind == OR] > 1).sum() == different + 1


def test_the_table_grows_while_an_sdd_is_read():
    """Far more nodes than the length of the file lets expect: short ids, elements that are all different."""
    rng = np.random.default_rng(0)
    rows = [f"L {i} 0 {i + 1}" for i in range(90)]
    pairs = rng.permutation([(i, j) for i in range(90) for j in range(i)])
    rows += [f"D {90 + i} 0 89 " + " ".join(map(str, pairs[89 * i : 89 * i + 89].ravel())) for i in range(45)]
    rows.append("D 135 0 45 " + " ".join(f"0 {90 + i}" for i in range(45)))
    text = f"sdd {len(rows)}\n" + "\n".join(rows)
    builder = CircuitBuilder()
    before = len(builder._table)
    sdd_file._insert(builder, text.encode(), None, None, False)
    assert len(builder._table) > before
    assert builder.num_nodes == 2 + 90 + 4005 + 45 + 45 + 1
    assert_same_circuit(parse_sdd(text.encode(), check=False), obvious_sdd(text))


@settings(max_examples=300, deadline=None)
@given(
    word=st.from_regex(rb"-?[0-9]{0,12}[ -~\x80-\xff]?", fullmatch=True),
    before=st.sampled_from([b" ", b"  ", b"\t", b" \t "]),
    after=st.sampled_from([b"", b" ", b"\n", b"\r\n", b" 7 8 9 10\n", b"\t1234567890123456"]),
)
def test_numbers_are_read_the_same_eight_bytes_at_a_time(word, before, after):
    """In a c2d file, against Python's own reading of the same word."""
    data = b"nnf 1 0 2147483647\nL" + before + word + after
    words = (before + word + after).splitlines()[0].split()
    number = words[0].decode("latin-1") if words else ""
    valid = re.fullmatch(r"-?[0-9]+", number) is not None and len(words) == 1 and len(data.splitlines()) == 2
    if valid and 0 < abs(int(number)) < 2**31:
        assert parse_nnf(data).literal.tolist() == [int(number)]
    else:
        with pytest.raises(ParseError):
            parse_nnf(data)


def test_small_texts():
    table = root_tables(parse_nnf(D4.encode()))
    assert table.tolist() == [[False, False, True, True]]
    np.testing.assert_array_equal(root_tables(parse_nnf(C2D.encode())), table)
    for text, truth in (("t 1 0", True), ("f 1 0", False)):
        assert root_tables(parse_nnf(text.encode())).tolist() == [[truth]]
    for text, truth in (("nnf 1 0 0\nA 0", True), ("nnf 1 0 0\nO 0 0", False), ("sdd 1\nT 0", True)):
        assert root_tables((parse_sdd if text[0] == "s" else parse_nnf)(text.encode())).tolist() == [[truth]]
    # Ids need not be dense, and literals of a decision may be on an edge to any node.
    sparse = parse_nnf(b"o 2000000000 0\nt 7 0\n2000000000 7 1 -2 0\n2000000000 7 2 0\n")
    assert root_tables(sparse).tolist() == [[False, True, True, True]]


def test_only_one_root_fits_a_text_format(tmp_path):
    circuit, _ = random_circuit(1, num_roots=2)
    for write in (write_nnf, write_sdd):
        with pytest.raises(UnsupportedError, match="has one root, this circuit has 2"):
            write(circuit, tmp_path / "x")
    with pytest.raises(UnsupportedError, match="unknown d-DNNF dialect 'dsharp'"):
        write_nnf(random_circuit(1)[0], tmp_path / "x", "dsharp")
    assert os.listdir(tmp_path) == []


# Real files and other programs.


@pytest.mark.parametrize(("name", "nodes", "edges"), [("sudoku_4", 853, 1524), ("4-grid", 3141, 7056)])
def test_published_circuits(name, nodes, edges, tmp_path):
    """Node counts of the flat form without the two constants, and PySDD's own model count."""
    from pysdd.sdd import SddManager, Vtree

    path = data_path(f"circuits/{name}.sdd.gz")
    circuit = load(path)
    circuit.check()
    assert (circuit.num_nodes, circuit.num_edges) == (nodes, edges)
    plain = tmp_path / f"{name}.sdd"
    plain.write_bytes(gzip.decompress(path.read_bytes()))
    vtree = Vtree.from_file(bytes(data_path(f"circuits/{name}.vtree")))
    manager = SddManager.from_vtree(vtree)
    node = manager.read_sdd_file(bytes(plain))
    assert model_count(circuit) == node.global_model_count()
    assert circuit.vtree is not None
    assert circuit.vtree.variable_order.tolist() == list(manager.var_order())
    without = load(path, vtree=False)
    assert without.vtree is None
    assert_same_structure(without, circuit)
    for dialect in ("d4", "c2d"):
        write_nnf(circuit, tmp_path / "c.nnf", dialect)
        assert_same_structure(load(tmp_path / "c.nnf"), circuit)


CNFS = [
    [[1, 2], [-1, 3], [2, -4, 5]],
    [[1], [-1]],
    [],
    [[1], [-2]],
    [[1, 2, 3], [-1, -2, 4], [-3, 5, 6], [2, -5, -6], [-4, 6, 1]],
]


@pytest.mark.parametrize("clauses", CNFS)
def test_d4_output(clauses):
    py_d4 = pytest.importorskip("py_d4")
    text = py_d4.Solver(clauses, 6).compile().getNNFString()
    circuit = parse_nnf(text.encode(), num_variables=6)
    circuit.check()
    worlds = np.arange(2**6)
    expected = np.ones(2**6, bool)
    for clause in clauses:
        expected &= np.any([((worlds >> (abs(x) - 1)) & 1) == (x > 0) for x in clause], axis=0)
    np.testing.assert_array_equal(root_tables(circuit)[0], expected)
    assert model_count(circuit) == expected.sum()


def test_d4_on_sudoku():
    py_d4 = pytest.importorskip("py_d4")
    text = py_d4.Solver(str(data_path("circuits/sudoku_4.cnf"))).compile().getNNFString()
    circuit = parse_nnf(text.encode(), num_variables=64)
    circuit.check()
    assert model_count(circuit) == 288


def test_live_pysdd_nodes():
    from pysdd.sdd import SddManager

    from derivable.circuit import from_sdd

    manager = SddManager(var_count=5)
    a, b, c, d, e = (manager.literal(i) for i in range(1, 6))
    shared = (a & b) | (~a & c)
    roots = [shared & d, shared | e, manager.true(), manager.false(), ~b, shared]
    together = from_sdd(roots)
    together.check()
    worlds = np.arange(32)
    x = [(worlds >> i) & 1 == 1 for i in range(5)]
    table = np.where(x[0], x[1], x[2])
    expected = [table & x[3], table | x[4], worlds >= 0, worlds < 0, ~x[1], table]
    np.testing.assert_array_equal(root_tables(together), expected)
    assert together.num_variables == 5
    assert together.vtree is not None
    alone = [from_sdd(root) for root in roots]
    for circuit, row in zip(alone, expected):
        circuit.check()
        np.testing.assert_array_equal(root_tables(circuit)[0], row)
    assert together.num_nodes < sum(circuit.num_nodes for circuit in alone)
    assert_same_structure(from_sdd([roots[0]]), from_sdd(roots[0]))
    # Few roots are handed over as files, many are walked.
    walked = from_sdd(roots[:3] * 2)
    assert_same_structure(from_sdd(roots[:3]), replace(walked, roots=walked.roots[:3]))
    assert from_sdd([]).num_roots == 0


def test_deep_files_do_not_recurse(tmp_path):
    depth = 200_000
    kind = np.concatenate([[LITERAL] * 3, np.tile([AND, OR], depth // 2)]).astype(np.uint8)
    literal = np.zeros(depth + 3, np.int32)
    literal[:3] = [1, 2, 3]
    children = np.stack([np.arange(2, depth + 2), np.tile([0, 1], depth // 2)], 1)
    offsets = np.r_[0, 0, 0, np.arange(0, 2 * depth + 1, 2)]
    circuit = circuit_from_arrays(kind, literal, offsets, children.ravel(), [depth + 2], 3)
    assert circuit.num_levels == depth + 1
    for dialect in ("d4", "c2d"):
        write_nnf(circuit, tmp_path / "deep.nnf", dialect)
        assert_same_circuit(load(tmp_path / "deep.nnf"), circuit)
    circuit.save(tmp_path / "deep.dvc")
    assert_same_circuit(load(tmp_path / "deep.dvc"), circuit)


@pytest.mark.slow
def test_million_node_files(tmp_path, capsys):
    """Times are printed; the bound is the size of the file over the bandwidth."""
    rng = np.random.default_rng(1)
    nodes, literals = 1_000_000, 2000
    rows = [f"sdd {nodes}"]
    rows += [f"L {i} 0 {i + 1 if i < 1000 else 999 - i}" for i in range(literals)]
    primes = rng.integers(0, literals, (nodes, 2))
    subs = np.maximum(np.arange(nodes)[:, None] - 1 - rng.integers(0, 1000, (nodes, 2)), 0)
    rows += [f"D {i} 1 2 {primes[i, 0]} {subs[i, 0]} {primes[i, 1]} {subs[i, 1]}" for i in range(literals, nodes)]
    data = "\n".join(rows).encode()
    parse_sdd(b"sdd 1\nL 0 0 1")
    start = time.perf_counter()
    circuit = parse_sdd(data, check=False)
    elapsed = time.perf_counter() - start
    write_nnf(circuit, tmp_path / "c.nnf", "c2d")
    circuit.save(tmp_path / "c.dvc")
    parse_nnf(C2D.encode())
    start = time.perf_counter()
    back = load(tmp_path / "c.nnf")
    nnf_elapsed = time.perf_counter() - start
    start = time.perf_counter()
    own = load(tmp_path / "c.dvc")
    own_elapsed = time.perf_counter() - start
    with capsys.disabled():
        size = len(data) / 1e6
        print(f"\nSDD of {nodes} nodes, {size:.0f} MB: {elapsed:.2f} s, {size / elapsed:.0f} MB/s -> {circuit!r}")
        size = (tmp_path / "c.nnf").stat().st_size / 1e6
        print(f"c2d {size:.1f} MB: {nnf_elapsed:.2f} s, {size / nnf_elapsed:.0f} MB/s")
        size = (tmp_path / "c.dvc").stat().st_size / 1e6
        print(f"own {size:.1f} MB: {own_elapsed:.3f} s, {size / own_elapsed:.0f} MB/s")
    assert_same_circuit(back, circuit)
    assert_same_circuit(own, circuit)
    assert OR in circuit.kind


def test_own_format_is_compact(tmp_path):
    circuit = load(data_path("circuits/4-grid.sdd.gz"))
    write_nnf(circuit, tmp_path / "c.nnf", "c2d")
    circuit.save(tmp_path / "c.dvc")
    assert (tmp_path / "c.dvc").stat().st_size < 0.6 * (tmp_path / "c.nnf").stat().st_size
    assert parse((tmp_path / "c.dvc").read_bytes()).num_nodes == circuit.num_nodes


def test_load_compiles_a_cnf(tmp_path):
    path = data_path("circuits/sudoku_4.cnf")
    circuit = load(path)
    assert circuit.num_variables == 64
    assert model_count(circuit) == 288
    (tmp_path / "zipped.cnf.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert model_count(load(tmp_path / "zipped.cnf.gz")) == 288


def test_kernels_can_be_explained():
    text = parse_nnf(D4.encode()).explain("kernels")
    assert text.strip()
