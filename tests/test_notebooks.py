"""What notebooks show: HTML and SVG that parse, with everything escaped, and completion of keys."""

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pytest

import derivable as dv
from derivable.circuit.show.picture import MAX_NODES, svg

ODD_NAMES = ["a", '<b>&"c', "\ud800\n\x00", "ein sehr langer Name"]


def parsed(markup: str) -> ElementTree.Element:
    return ElementTree.fromstring(f"<all>{markup}</all>")


def cells(element: ElementTree.Element) -> list[list[str]]:
    return [["".join(cell.itertext()) for cell in row] for row in element.iter("tr")]


def local_name(element: ElementTree.Element) -> str:
    return element.tag.split("}")[-1]


# Databases


def test_a_database_is_a_table_a_relation():
    program = dv.Program("""
        type edge(source: usize, target: usize)
        rel edge = {0.5::(0, 1), (1, 2)}
        rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))
    """)
    page = parsed(program.run(provenance="exact")._repr_html_())
    assert [element.text for element in page.iter("b")] == ["edge", "path"]
    first, second = page.iter("table")
    assert cells(first) == [["tag", "source: usize", "target: usize"], ["0.5", "0", "1"], ["1", "1", "2"]]
    assert cells(second) == [["tag", "x: usize", "y: usize"], ["0.5", "0", "1"], ["0.5", "0", "2"], ["1", "1", "2"]]


def test_texts_are_escaped():
    text = '<script>"&\n\u202e\x00\ud800'
    database = dv.Program('type word(String) query word("<i>")').run(facts={"word": ["<i>"]})
    assert [element.text for element in parsed(database._repr_html_()).iter("b")] == ['word("<i>")']
    view = dv.Program("type word(String)").run(facts={"word": [text]})["word"]
    assert cells(parsed(view._repr_html_()))[1] == ['"<script>\\"&\\n\\u202e\\0\\ud800"']


def test_long_and_wide_relations_are_cut():
    width = 23
    program = dv.Program(f"type r({', '.join(['i32'] * width)})")
    view = program.run(facts={"r": np.arange(1000)[:, None] + np.arange(width)})["r"]
    markup = view._repr_html_()
    rows = cells(parsed(markup))
    assert rows[0] == ["i32"] * 20 + ["…"]
    assert rows[1:] == [[*map(str, range(first, first + 20)), "…"] for first in range(20)]
    assert "980 more rows" in markup
    assert repr(view).endswith("... 1000 in all}")

    (cell,) = cells(parsed(dv.Program("type r(String)").run(facts={"r": ["x" * 1000]})["r"]._repr_html_()))[1]
    assert len(cell) == 80
    assert cell.endswith("x…")


def test_relations_without_rows_or_columns():
    database = dv.Program("rel e = {(0, 1)} rel yes() = e(0, 1) rel no(x) = e(x, x)").run()
    assert "".join(parsed(database["no"]._repr_html_()).itertext()) == "no rows"
    assert "".join(parsed(database["yes"]._repr_html_()).itertext()) == "true"
    assert cells(parsed(dv.Program("rel 0.25::rain()").run(provenance="exact")["rain"]._repr_html_())) == [
        ["tag"],
        ["0.25"],
    ]


def test_many_relations_are_named_only():
    text = " ".join(f"rel r{i} = {{{i}}}" for i in range(40))
    markup = dv.Program(text).run()._repr_html_()
    assert len(list(parsed(markup).iter("table"))) == 30
    assert "… 10 more relations: r30, r31" in markup


def test_keys_are_completed():
    program = dv.Program('rel edge = {(0, 1)} rel word = {"b", "a"} query word query edge(0, x)')
    database = program.run()
    assert database._ipython_key_completions_() == ["word", "edge(0, x)"]
    assert database["word"]._ipython_key_completions_() == ["a", "b"]
    assert database["edge(0, x)"]._ipython_key_completions_() == [(0, 1)]
    for name in database:
        assert all(key in database[name] for key in database[name]._ipython_key_completions_())


# Circuits


def boxes(root: ElementTree.Element) -> list[tuple[float, float, float, float]]:
    found = [element for element in root.iter() if local_name(element) == "rect"]
    return [tuple(float(box.get(key)) for key in ("x", "y", "width", "height")) for box in found]


CIRCUITS = {
    "odd names": lambda: dv.circuit.compile(dv.circuit.exactly_one(dv.circuit.variables(ODD_NAMES))),
    "deep": lambda: dv.circuit.compile(dv.circuit.exactly_k(2, dv.circuit.variables(8))),
    "constant": lambda: dv.circuit.compile([[1], [-1]]),
    "clauses": lambda: dv.circuit.compile([[1, 2, 3], [-1, 4], [-2, -4]]),
}


@pytest.mark.parametrize("make", CIRCUITS.values(), ids=CIRCUITS)
def test_a_picture_shows_every_node_and_edge(make):
    circuit = make()
    root = ElementTree.fromstring(svg(circuit))
    places = boxes(root)
    assert len(places) == circuit.num_nodes
    for (x0, y0, w0, h0), (x1, y1, w1, h1) in itertools.combinations(places, 2):
        assert x0 + w0 <= x1 or x1 + w1 <= x0 or y0 + h0 <= y1 or y1 + h1 <= y0
    _, _, width, height = map(float, root.get("viewBox").split())
    assert all(x >= 0 and x + w <= width and y >= 0 and y + h <= height for x, y, w, h in places)

    # Every edge begins at the bottom of its parent's box and ends at the top of its child's.
    drawn = set()
    for element in root.iter():
        numbers = [float(n) for n in re.findall(r"-?[\d.]+", element.get("d", ""))]
        if "C" in element.get("d", ""):
            (parent,) = [n for n, (x, y, w, h) in enumerate(places) if (x + w / 2, y + h) == pytest.approx(numbers[:2])]
            (child,) = [n for n, (x, y, w, h) in enumerate(places) if (x + w / 2, y) == pytest.approx(numbers[-2:])]
            drawn.add((parent, child))
    parents = np.repeat(np.arange(circuit.num_nodes), np.diff(circuit.offsets))
    assert drawn == set(zip(parents.tolist(), circuit.children.tolist()))


def test_names_in_a_picture_are_escaped():
    root = ElementTree.fromstring(svg(CIRCUITS["odd names"]()))
    texts = {element.text for element in root.iter() if local_name(element) == "text"}
    assert {'<b>&"c', '¬<b>&"c', "\\ud800\\n\\x00", "ein sehr langer N…", "¬ein sehr langer …", "root"} <= texts
    titles = {element.text.split(": node")[0] for element in root.iter() if local_name(element) == "title"}
    assert "ein sehr langer Name" in titles


def test_roots_are_numbered_where_there_are_several():
    b = dv.circuit.CircuitBuilder()
    x, y = b.literal(1), b.literal(2)
    either = b.disjunction([x, y])
    root = ElementTree.fromstring(svg(b.build([either, x, either, b.true()])))
    texts = [element.text for element in root.iter() if local_name(element) == "text"]
    assert {"roots 0, 2", "root 1", "root 3", "true"} <= set(texts)


def test_a_large_circuit_is_a_table():
    circuit = dv.circuit.compile(dv.circuit.exactly_one(dv.circuit.variables(64)))
    assert circuit.num_nodes > MAX_NODES
    shown = dict(cells(parsed(circuit._repr_html_())))
    assert int(shown["nodes"]) == circuit.num_nodes
    assert shown["variables"] == "64"
    inner = sum(int(number) for number in shown["and-nodes, or-nodes"].split(", "))
    assert inner == int((np.diff(circuit.offsets) > 0).sum())
    empty = dv.circuit.CircuitBuilder().build([])
    assert dict(cells(parsed(empty._repr_html_())))["nodes"] == "0"


# Layers


def test_a_layer_shows_its_inputs_and_outputs():
    pytest.importorskip("torch")
    layer = dv.nn.Logic(
        'rel stop() = light("red") rel go(x) = light(x), x != "red"',
        inputs={"light": dv.categorical(["red", "<b>", "green"])},
        outputs={"stop": (), "go": ["<b>", "green"]},
    )
    page = parsed(layer._repr_html_())
    assert cells(page) == [
        ["", "relation", "facts", "tensor"],
        ["input", "light", "categorical(3 facts)", "[*batch, 3]"],
        ["output", "stop", "()", "[*batch]"],
        ["output", "go", '("<b>"), ("green")', "[*batch, 2]"],
    ]
    drawn = {element.text for element in page.iter() if local_name(element) == "text"}
    assert drawn == {'light("red")', 'light("<b>")', 'light("green")', "root 0", "root 1", "root 2"}


def test_a_layer_names_the_random_facts_of_its_program():
    torch = pytest.importorskip("torch")
    layer = dv.nn.Logic(
        "rel 0.2::sprinkler() rel wet() = rain() or sprinkler()",
        inputs={"rain": dv.independent([()])},
        outputs={"wet": ()},
    )
    circuit = layer._circuit_of_facts()
    weights = {"rain()": 0.5, "random fact 0": 0.2}
    expected = circuit.evaluate([weights[name] for name in circuit.names]).item()
    assert expected == pytest.approx(layer(rain=torch.tensor([0.5])).item()) == pytest.approx(0.6)
    drawn = {element.text for element in parsed(layer._repr_html_()).iter() if local_name(element) == "text"}
    assert {"rain()", "random fact 0"} <= drawn


def test_a_program_shows_its_relations_and_its_text():
    text = 'type seen(x: String)\nrel odd(x) = seen(x), x != "<b>&"\n' + "".join(f"rel r{i}(1)\n" for i in range(60))
    page = parsed(dv.Program(text + "query odd", "<i>")._repr_html_())
    assert cells(page) == [["", "relation", "columns"], ["input", "seen", "String"], ["output", "odd", "String"]]
    assert "<i>" in "".join(page.itertext())
    (block,) = page.iter("pre")
    assert block.text.split("\n")[1] == 'rel odd(x) = seen(x), x != "<b>&"'
    assert block.text.endswith("… 23 more lines")


def test_coordinates_show_their_first_entries():
    values = dv.tensor.coordinates(np.diag(np.arange(1.0, 31.0)))
    page = parsed(values._repr_html_())
    assert cells(page)[:3] == [["axis 0", "axis 1", "value"], ["0", "0", "1.0"], ["1", "1", "2.0"]]
    assert len(cells(page)) == 21
    assert "10 more entries" in "".join(page.itertext())


def test_an_item_memory_shows_its_names():
    pytest.importorskip("torch")
    memory = dv.vsa.ItemMemory((4, 64), generator=0)
    for name in ODD_NAMES:
        memory.add(name)
    page = parsed(memory._repr_html_())
    assert cells(page)[1:3] == [["0", "'a'"], ["1", "'<b>&\"c'"]]
    assert "4 vectors [4, 64]" in "".join(page.itertext())


def test_a_design_shows_its_summary():
    torch = pytest.importorskip("torch")
    design = dv.accelerator.design(lambda x: x @ x.T, torch.randn(4, 4))
    lines = dict(cells(parsed(design._repr_html_())))
    assert lines["precision"] == "int8 neural, int4 symbolic"
    assert len(lines) > 6


def test_the_text_of_a_program_counts_its_items():
    assert repr(dv.Program("rel a = {1}")) == "Program('<program>', 1 item)"
    assert repr(dv.Program("rel a = {1} query a")) == "Program('<program>', 2 items)"


def test_a_query_with_constants_is_found_under_its_text():
    database = dv.Program('rel road = {("a", "b"), ("b", "c")} query road("a", x)').run()
    with pytest.raises(
        dv.DerivableError, match=r"""its query is database\['road\("a", x\)'\]; for the whole"""
    ) as caught:
        database["road"]
    assert "add `query road`" in str(caught.value)
    assert len(database['road("a", x)']) == 1
