"""Files of facts, beside Python's csv module and Arrow's writers."""

import contextlib
import csv
import gzip

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet

import derivable as dv
from derivable.core.diagnostics import DerivableError, DomainError, ParseError, TypeMismatchError
from derivable.datalog.api.fact_output import write_facts
from derivable.datalog.facts import fact_files
from derivable.datalog.facts.fact_files import FileForm, read_facts
from derivable.datalog.policy.costs import under
from derivable.datalog.values.values import TYPES

NAMES = ("i64", "String", "f64", "bool")
KINDS = [TYPES[name] for name in NAMES]
PROGRAM = dv.Program("type r(number: i64, word: String, size: f64, flag: bool)\nquery r")

texts = st.text(st.characters(exclude_categories=["Cs", "Cc"], exclude_characters='"'), min_size=1).filter(
    lambda s: s == s.strip() and not s.startswith("#")
)
row = st.tuples(
    st.integers(-(2**63), 2**63 - 1), texts, st.floats(allow_nan=False).map(lambda x: x + 0.0), st.booleans()
)


def tuples_of(columns):
    def values(array):
        if isinstance(array, np.ndarray):
            return array.tolist()
        made = array.texts if isinstance(array.texts, list) else array.texts.decoded()
        return made if array.positions is None else [made[i] for i in array.positions.tolist()]

    return list(zip(*map(values, columns.arrays)))


@pytest.fixture(params=["by Arrow", "by lines"])
def route(request, costs):
    costs(many=0 if request.param == "by Arrow" else 1 << 60)
    return request.param


@settings(max_examples=40, deadline=None)
@given(
    rows=st.lists(row, min_size=1, max_size=6), ending=st.sampled_from([".csv", ".tsv", ".facts"]), packed=st.booleans()
)
def test_both_routes_read_what_was_written(tmp_path_factory, rows, ending, packed):
    path = tmp_path_factory.mktemp("files") / f"r{ending}{'.gz' if packed else ''}"
    delimiter = "," if ending == ".csv" else "\t"
    with (gzip.open if packed else open)(path, "wt", encoding="utf-8", newline="") as file:
        quoting = csv.QUOTE_MINIMAL if ending == ".csv" else csv.QUOTE_NONE
        writer = csv.writer(file, delimiter=delimiter, lineterminator="\n", quoting=quoting, quotechar='"')
        writer.writerows([(n, word, repr(x), str(b).lower()) for n, word, x, b in rows])
    for many in (0, 1 << 60):
        with under(many=many):
            assert tuples_of(read_facts(path, "r", KINDS)) == rows


@pytest.mark.parametrize("ending", [".parquet", ".feather", ".arrow"])
def test_columns(tmp_path, ending):
    path = tmp_path / f"r{ending}"
    table = pa.table(
        {"word": ["a", "b", "a"], "size": [1.5, 2.0, 3.0], "flag": [True, False, True], "number": [1, 2, 3]}
    )
    parquet.write_table(table, path) if ending == ".parquet" else feather.write_feather(table, path)
    found = PROGRAM.run(facts={"r": path})["r"]
    assert set(found) == {(1, "a", 1.5, True), (2, "b", 2.0, False), (3, "a", 3.0, True)}


def test_results_come_back_from_a_file_with_their_tags(tmp_path):
    program = dv.Program("type edge(a: i32, b: String)\nquery edge")
    first = program.run(facts={"edge": {(1, "x"): 0.25, (2, "y"): 0.5}})
    parquet.write_table(first["edge"].to_arrow(), tmp_path / "edge.parquet")
    for given_facts in (tmp_path / "edge.parquet", first["edge"].to_arrow(), first["edge"].to_pandas()):
        again = program.run(facts={"edge": given_facts})
        assert dict(again["edge"].items()) == {(1, "x"): 0.25, (2, "y"): 0.5}
        assert again.provenance == "exact"


def test_headers(tmp_path, route):
    (tmp_path / "r.csv").write_text("flag,word,number,size\ntrue,a,1,0.5\n")
    (tmp_path / "s.csv").write_text("word,probability,number,size,flag\na,0.25,1,0.5,true\n")
    (tmp_path / "t.csv").write_text("n,w,s,f\n1,a,0.5,true\n")
    names = ("number", "word", "size", "flag")
    for file, form in [("r.csv", FileForm()), ("s.csv", FileForm()), ("t.csv", FileForm(header=True))]:
        found = read_facts(tmp_path / file, "r", KINDS, names, form)
        assert tuples_of(found) == [(1, "a", 0.5, True)]
        assert (found.probabilities is not None) == (file == "s.csv")
    with pytest.raises(ParseError, match=r"t\.csv:1:1: error: 'n' in column 1 \(number\) is not of type i64"):
        read_facts(tmp_path / "t.csv", "r", KINDS, names)


@pytest.mark.parametrize("first", ["Name,City", "name,town", "full_name,city", "tag,Name,City"])
def test_headers_that_are_spelt_unlike_the_declaration(tmp_path, route, first):
    path, types = tmp_path / "lives.csv", (TYPES["String"],) * 2
    path.write_text(f"{first}\n" + "0.5," * first.startswith("tag") + "Ada,Bozen\n")

    def read(**form):
        return tuples_of(read_facts(path, "lives", types, ("name", "city"), FileForm(**form)))

    with pytest.raises(ParseError, match=r"lives\.csv:1:1: error: the first line seems to be a header") as caught:
        read()
    assert f"{first.replace(',', ', ')}, and `lives` has the columns name, city" in str(caught.value)
    if first.endswith("Name,City"):
        assert read(header=True) == [("Ada", "Bozen")]
        return
    with pytest.raises(ParseError, match="the columns are named"):
        read(header=True)
    assert read(header=False) == [tuple(first.split(",")), ("Ada", "Bozen")]


def test_files_given_from_python_say_whether_they_have_a_header(tmp_path):
    path = tmp_path / "lives.txt"
    path.write_text("person;home\nAda;Bozen\n")
    program = dv.Program("type lives(name: String, city: String)\nquery lives")

    def run(**form):
        return list(program.run({"lives": dv.datalog.FactFile(path, delimiter=";", **form)})["lives"])

    assert run(header=True) == [("Ada", "Bozen")]
    assert run() == run(header=False) == [("Ada", "Bozen"), ("person", "home")]
    with pytest.raises(DomainError, match="not one character"):
        dv.datalog.FactFile(path, delimiter=";;")


@pytest.mark.parametrize("ending", [".parquet", ".arrow"])
def test_columns_of_files_that_fit_the_declaration_in_part(tmp_path, ending):
    path = tmp_path / f"lives{ending}"
    table = pa.table({"city": ["Bozen"], "who": ["Ada"]})
    if ending == ".parquet":
        parquet.write_table(table, path)
    else:
        feather.write_feather(table, path)
    with pytest.raises(ParseError, match="the columns are named city, who, and those of `lives` name, city"):
        dv.Program("type lives(name: String, city: String)").run({"lives": path})


def test_quotes_spaces_and_lines_in_values(tmp_path, route):
    (tmp_path / "r.csv").write_text('1, "Ada, ""L""",1.5,true\n2,"two\nlines",2,0\n\n3,x y,-0.0,FALSE\n')
    expected = [(1, 'Ada, "L"', 1.5, True), (2, "two\nlines", 2.0, False), (3, "x y", 0.0, False)]
    assert tuples_of(read_facts(tmp_path / "r.csv", "r", KINDS)) == expected


def test_entities_attributes_values(tmp_path):
    (tmp_path / "people.csv").write_text("id,name,age\n7,Ada,36\n8,Bo,41\n")
    kinds = [TYPES["u32"], TYPES["String"], TYPES["String"]]
    found = read_facts(tmp_path / "people.csv", "people", kinds, form=FileForm(keys=("id",)))
    assert tuples_of(found) == [(7, "name", "Ada"), (7, "age", "36"), (8, "name", "Bo"), (8, "age", "41")]
    form = FileForm(fields=("age", "id"))
    assert tuples_of(read_facts(tmp_path / "people.csv", "people", kinds[:1] * 2, form=form)) == [(36, 7), (41, 8)]
    with pytest.raises(ParseError, match="the file has no column `nam`") as caught:
        read_facts(tmp_path / "people.csv", "people", kinds, form=FileForm(fields=("id", "nam", "age")))
    assert caught.value.hint == "did you mean `name`?"


def test_an_error_far_down_is_found(tmp_path):
    lines = [f"{i},w{i % 7},0.5,true" for i in range(5000)]
    path = tmp_path / "r.csv"
    path.write_text("\n".join(lines))
    assert len(read_facts(path, "r", KINDS)) == 5000
    for text, message in [
        ("x,w,0.5,true", "'x' in column 1 is not of type i64"),
        ("9223372036854775808,w,0.5,true", "is too large or too small for i64"),
        ("1,w,nan,true", "the value in column 3 is missing ('nan')"),
        ("1,w,0.5,yes", "'yes' in column 4 is not of type bool"),
        ("1,w,0.5", "3 columns; `r` has 4"),
        ("0.5,1,w,0.5,true", "5 columns, and 4 in the first row"),
    ]:
        lines[4321] = text
        path.write_text("\n".join(lines))
        with pytest.raises(ParseError, match=r"r\.csv:4322:") as caught:
            read_facts(path, "r", KINDS)
        assert message in str(caught.value)


def test_probabilities_far_down(tmp_path):
    path = tmp_path / "e.facts"
    path.write_text("".join(f"0.5\t{i}\t{i + 1}\n" for i in range(9000)))
    found = read_facts(path, "e", [TYPES["u32"]] * 2)
    assert tuples_of(found)[8999] == (8999, 9000)
    assert (found.probabilities == 0.5).all()
    path.write_text(path.read_text() + "1.5\t0\t0\n")
    program = dv.Program("type e(u32, u32)")
    with pytest.raises(DomainError, match=r"e.facts:9001:1: error: the tag 1.5 of a fact of `e` is not a probability"):
        program.run({"e": path}, provenance="exact")
    assert program.run({"e": path}, provenance="min_plus")["e"][0, 0] == 1.5
    path.write_text(path.read_text() + "x\t0\t0\n")
    with pytest.raises(ParseError, match=r"e.facts:9002:1: error: 'x' is not a number, which a tag is"):
        read_facts(path, "e", [TYPES["u32"]] * 2)


def test_frames_of_many_texts():
    program = dv.Program("type r(i64, String)\nrel n(w, c) = c := count(i: r(i, w))\nquery n")
    words = [f"w{i % 10}" for i in range(20_000)]
    import pandas as pd

    columns = {"i": list(range(20_000)), "w": words}
    frames = [pd.DataFrame(columns), pa.table(columns), list(zip(*columns.values()))]
    with contextlib.suppress(ImportError):
        import polars

        frames.append(polars.DataFrame(columns))
    for frame in frames:
        assert dict.fromkeys(program.run({"r": frame})["n"]) == {(f"w{i}", 2000): None for i in range(10)}


def test_missing_values_are_refused():
    table = pa.table({"i": [1, 2], "w": ["a", None]})
    with pytest.raises(TypeMismatchError, match="row 1, column 'w': the value is missing"):
        dv.Program("type r(i64, String)\nquery r").run({"r": table})


def test_bad_files(tmp_path):
    (tmp_path / "r.parquet").write_text("no parquet")
    with pytest.raises(ParseError, match="cannot read the file"):
        PROGRAM.run({"r": tmp_path / "r.parquet"})
    with pytest.raises(ParseError, match="cannot read the file"):
        PROGRAM.run({"r": tmp_path / "absent.csv"})
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "r.parquet")
    with pytest.raises(ParseError, match="1 column; `r` has 4") as caught:
        PROGRAM.run({"r": tmp_path / "r.parquet"})
    assert caught.value.hint == "it has a"
    (tmp_path / "r.csv").write_bytes(b"\xff\xfe1,2")
    with pytest.raises(DerivableError, match="not UTF-8 text"):
        PROGRAM.run({"r": tmp_path / "r.csv"})


def test_files_of_a_program(tmp_path):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "edges.csv").write_text("from,to,p\n0,1,0.5\n1,2,0.25\n")
    (tmp_path / "lib" / "edges.scl").write_text(
        '@file("edges.csv", header=true, fields=["from", "to"])\ntype edge(a: u32, b: u32)\n'
    )
    (tmp_path / "names.tsv").write_text("0;zero\n2;two\n")
    (tmp_path / "p.scl").write_text(
        'import "lib/edges.scl"\n@file("names.tsv", deliminator=";")\ntype name(u32, String)\n'
        "rel path(a, b) = edge(a, b) or (path(a, c) and edge(c, b))\n"
        'rel named(x, y) = path(a, b), name(a, x), name(b, y)\n@file("out.csv", header=true) query named\nquery edge'
    )
    program = dv.Program.from_file(tmp_path / "p.scl")
    for _ in range(2):
        assert set(program.run()["named"]) == {("zero", "two")}
    (tmp_path / "names.tsv").write_text("0;null\n2;two\n")
    assert set(program.run()["named"]) == {("null", "two")}
    (tmp_path / "names.tsv").unlink()
    with pytest.raises(ParseError, match=r"p.scl:2:1: error: cannot find the file of `name`"):
        program.run()


def test_probabilities_of_a_declared_file(tmp_path):
    (tmp_path / "rain.csv").write_text("0.25,1\n0.5,2\n")
    (tmp_path / "p.scl").write_text(
        '@file("rain.csv", has_probability=true) type rain(day: i32)\nrel wet() = rain(_)\nquery wet'
    )
    assert dv.Program.from_file(tmp_path / "p.scl").run()["wet"][()] == pytest.approx(1 - 0.75 * 0.5)
    (tmp_path / "rain.csv").write_text("1\n2\n")
    with pytest.raises(ParseError, match=r"rain.csv:1:1: error: 1 column; `rain` needs 2"):
        dv.Program.from_file(tmp_path / "p.scl").run()


def test_terms_of_a_declared_file_that_are_none(tmp_path):
    (tmp_path / "t.csv").write_text("1,N()\n2,M()\n")
    text = 'type L = N() | C(i32, L)\n@file("t.csv") type t(i32, L)'
    with pytest.raises(dv.DerivableError, match=r"p.scl:2:1: error: facts for `t`, row 1, column 1: .*`M`"):
        dv.Program(text, str(tmp_path / "p.scl")).run()


@pytest.mark.parametrize("rows", [1, 20_000])
def test_one_column_more_has_no_probabilities_without_saying_so(tmp_path, rows):
    program = dv.Program('@file("e.csv") type edge(a: i32, b: i32)', str(tmp_path / "p.scl"))
    (tmp_path / "e.csv").write_text("0,1,2\n" * rows)
    with pytest.raises(ParseError, match=r"3 columns; `edge` needs 2\n.*\n.*\nhelp: .* say `has_probability=true`"):
        program.run()
    (tmp_path / "e.csv").write_text("tag,a,b\n" + "0.5,1,2\n" * rows)
    assert program.run(provenance="minmaxprob")["edge"][1, 2] == 0.5


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet", ".arrow"])
def test_what_is_written_is_read_again(tmp_path, ending):
    rows = {(1, 'a "b"' if ending != ".tsv" else "a", 0.5, True): 0.25, (2, "c", 1e300, False): 1.0}
    view = PROGRAM.run({"r": rows})["r"]
    path = tmp_path / f"r{ending}"
    write_facts(view, path, FileForm(header=True))
    assert dict(PROGRAM.run({"r": path})["r"].items()) == rows
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_what_a_file_cannot_hold(tmp_path):
    view = dv.Program("type r(String)\nquery r").run({"r": ["a\tb"]})["r"]
    with pytest.raises(DerivableError, match="cannot hold the values"):
        write_facts(view, tmp_path / "r.tsv")
    with pytest.raises(DerivableError, match="cannot tell the format"):
        write_facts(view, tmp_path / "r.xls")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("text", ["", "\n\n", "number,word,size,flag\n"])
def test_files_without_facts(tmp_path, text):
    (tmp_path / "r.csv").write_text(text)
    assert not PROGRAM.run({"r": tmp_path / "r.csv"})["r"]


def test_a_declared_file_is_that_of_the_working_directory_or_of_the_program(tmp_path, monkeypatch):
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "p.scl").write_text('@file("e.csv") type e(a: i32, b: i32)')
    program = dv.Program.from_file(tmp_path / "lib" / "p.scl")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(dv.DerivableError) as caught:
        program.run()
    assert f"looked for {tmp_path / 'e.csv'} and {tmp_path / 'lib' / 'e.csv'}" in caught.value.report()
    (tmp_path / "lib" / "e.csv").write_text("1,2\n")
    assert set(program.run()["e"]) == {(1, 2)}
    (tmp_path / "e.csv").write_text("3,4\n")
    assert set(program.run()["e"]) == {(3, 4)}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("name;years\nAnn;81\n", "1:1: error: 1 column; `age` has 2", '`dv.datalog.FactFile(path, delimiter=";")`'),
        ("name|years\nAnn|81\n", "1:1: error: 1 column; `age` has 2", '`deliminator="|"` of `@file`'),
        ("name,years\nAnn,eighty\n", r"2:5: error: 'eighty' in column 2 \(years\)", ""),
        ("name,years\nAnn,\n", r"2:1: error: the value in column 2 \(years\) is missing", "remove such lines"),
        ("name,years,town\nAnn,81,Ayr\n", "the names name, years, town", 'fields=["name", "years"]'),
    ],
    ids=["semicolons", "bars", "no number", "missing", "more columns"],
)
def test_mistakes_in_a_first_file_have_a_hint(tmp_path, text, message, hint):
    (tmp_path / "age.csv").write_text(text)
    with pytest.raises(ParseError, match=message) as caught:
        dv.Program("type age(name: String, years: i32)").run({"age": tmp_path / "age.csv"})
    assert hint in str(caught.value)


def test_the_hint_for_other_columns_works(tmp_path):
    (tmp_path / "age.csv").write_text("name,years,town\nAnn,81,Ayr\n")
    path = tmp_path / "age.csv"
    program = dv.Program(f'@file("{path}", header=true, fields=["name", "years"]) type age(name: String, years: i32)')
    assert list(program.run()["age"]) == [("Ann", 81)]


@pytest.mark.parametrize(
    ("first", "body"),
    [
        ("payer,payee", "Ann,Bob\nBob,Carl\n"),
        ("payer,payee", "ann,bob\nbob,carl\ncarl,ann\n"),
        ("payer,payee", "ann,bob\nbob,carl\n"),
        ("Payer,Paid to", "A-1,A-2\nA-3,A-4\n"),
        ("payer,payee", "x1,x2\n" + "x3,x4\n" * 30_000),
        ("col1,col2", "ann,bob\nbob,carl\n"),
        ("field_0,field_1", "Ann,Bob\nBob,Carl\n"),
        ("name,name", "ann,bob\nbob,carl\n"),
        ("From,To", "Ann,Bob\nBob,Carl\n"),
        ("person,person", "Ann,Bob\nBob,Carl\n"),
        ("付款人,收款人", "Ann,Bob\nBob,Carl\n"),
        ("משלם,מקבל", "ann,bob\nbob,carl\n"),
    ],
    ids=[
        *("capitals", "values in common", "a value in common", "digits", "large", "numbered", "numbered from 0"),
        *("one name twice", "usual names", "one word twice", "letters without case", "letters from right to left"),
    ],
)
def test_a_header_of_other_words_is_no_fact(tmp_path, first, body):
    path = tmp_path / "e.csv"
    path.write_text(f"{first}\n{body}")
    program = dv.Program("type e(src: String, dst: String)\nquery e")
    rows = {tuple(line.split(",")) for line in body.splitlines()}
    with pytest.raises(ParseError, match=r"e.csv:1:1: .* seems to be a header: .*\n.*\n.*\nhelp: .*`header=true`"):
        program.run({"e": path})
    assert set(program.run({"e": dv.datalog.FactFile(path, header=True)})["e"]) == rows
    first_row = tuple(first.split(","))
    assert set(program.run({"e": dv.datalog.FactFile(path, header=False)})["e"]) == rows | {first_row}


@pytest.mark.parametrize(
    "text",
    [
        "ann,bob\n",
        "ann,bob\ncarl,dora\n",
        "ann,bob\nbob,carl\n",
        "a,b\nB,C\nD,E\n",
        "n1,n2\nn2,n3\nn3,n1\n",
        "n1,n2\nm1,n5\nm2,m3\n",
        "ann,ann\nbob,carl\ndora,emil\n",
        "name,value\nann,name\nbob,carl\n",
        "x2,x7\ny1,z3\nu1,v4\n",
        "payer,payee\nann,payer\nBob,Carl\n",
        "城市,国家\n北京,中国\n上海,日本\n巴黎,法国\n",
        "עיר,מדינה\nירושלים,ישראל\nפריז,צרפת\nרומא,איטליה\n",
    ],
)
def test_facts_of_words_are_no_header(tmp_path, text):
    (tmp_path / "e.csv").write_text(text)
    rows = {tuple(line.split(",")) for line in text.splitlines()}
    for columns in ("src: String, dst: String", "String, String"):
        assert set(dv.Program(f"type e({columns})\nquery e").run({"e": tmp_path / "e.csv"})["e"]) == rows


@pytest.mark.parametrize(
    ("t", "line", "is_said"),
    [
        ("DateTime", "date,ann\n2026-03-05,bob", True),
        ("DateTime", "05.03.2026,ann", False),
        ("DateTime", "null,ann", False),
        ("Duration", "time taken,ann\n3 days,bob", True),
        ("char", "letter,ann\na,bob", True),
    ],
)
def test_a_name_over_moments_is_said_to_be_a_header(tmp_path, t, line, is_said):
    path = tmp_path / "t.csv"
    path.write_text(line + "\n")
    with pytest.raises(dv.DerivableError) as caught:
        dv.Program(f"type e(first: {t}, second: String)\nquery e").run({"e": dv.datalog.FactFile(path)})
    assert ("t.csv:1:1" in str(caught.value) and "header=True" in str(caught.value)) == is_said


@pytest.mark.parametrize("names", [("城市", "人口"), ("עיר", "תושבים")])
def test_types_tell_a_header_in_scripts_without_case(tmp_path, names):
    path = tmp_path / "e.csv"
    path.write_text(",".join(names) + "\n北京,2\nפריז,3\n")
    assert set(dv.Program("type e(String, i32)\nquery e").run({"e": path})["e"]) == {("北京", 2), ("פריז", 3)}
    program = dv.Program("type e(place: String, people: i32)\nquery e")
    with pytest.raises(ParseError, match="is not of type i32") as caught:
        program.run({"e": path})
    assert "header=true" in caught.value.hint
    assert set(program.run({"e": dv.datalog.FactFile(path, header=True)})["e"]) == {("北京", 2), ("פריז", 3)}


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('alice\n"b,c"\n', {"alice", "b,c"}),
        ("alice\n\n", {"alice"}),
        ("\ufeffalice\n", {"alice"}),
        ('name\n"b,c"\n"d"\n', {"b,c", "d"}),
        ('name\n"b,c"\nd\n', {"name", "b,c", "d"}),
    ],
)
def test_quotes_tell_a_header_where_some_are_not_needed(tmp_path, route, text, rows):
    (tmp_path / "u.csv").write_text(text, encoding="utf-8")
    assert {x for (x,) in tuples_of(read_facts(tmp_path / "u.csv", "u", [TYPES["String"]]))} == rows


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet"])
def test_columns_of_a_file_are_chosen_and_ordered_by_name(tmp_path, ending):
    table = pa.table({"town": ["Ayr"], "years": [81], "tag": [0.5], "name": ["Ann"]})
    path = tmp_path / f"age{ending}"
    if ending == ".parquet":
        parquet.write_table(table, path)
    else:
        table.to_pandas().to_csv(path, index=False, sep="," if ending == ".csv" else "\t")
    program = dv.Program("type age(String, i32)\nquery age")

    def run(fields, **form):
        return dict(program.run({"age": dv.datalog.FactFile(path, fields=fields, **form)})["age"].items())

    assert run(["name", "years"]) == {("Ann", 81): 0.5}
    assert run(["town", "years"], has_probability=False) == {("Ayr", 81): True}
    with pytest.raises(ParseError, match="the file has no column `nane`"):
        run(["nane", "years"])
    with pytest.raises(ParseError, match="1 column is taken; `age` has 2"):
        run("name")
    with pytest.raises(DomainError, match="no names"):
        run([1, 2])


def test_values_of_any_length(tmp_path, route):
    long = "a" * 200_000
    (tmp_path / "h.csv").write_text(f'"{long}",1\n')
    before = csv.field_size_limit()
    assert tuples_of(read_facts(tmp_path / "h.csv", "h", [TYPES["String"], TYPES["i32"]])) == [(long, 1)]
    assert csv.field_size_limit() == before


@pytest.mark.parametrize("head", ["payer,payee", "payer (name),payee [id]", "Plátce,Příjemce"])
@pytest.mark.parametrize("declaration", ["", "type r(String, String)\n", "type r(src: String, dst: String)\n"])
def test_words_above_other_texts_are_no_fact_whatever_is_declared(tmp_path, head, declaration):
    program = dv.Program(declaration + "rel s(x, y) = r(x, y)\nquery s")
    path = tmp_path / "r.csv"
    path.write_text(f"{head}\nA1,B2\nC3,D4\n")
    with pytest.raises(ParseError, match=r"r.csv:1:1: error: the first line, .*seems to be a header"):
        program.run(facts={"r": path})
    assert set(program.run(facts={"r": dv.datalog.FactFile(path, header=True)})["s"]) == {("A1", "B2"), ("C3", "D4")}


@pytest.mark.parametrize("rows", [1, 20_000])
@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("f64", "1e999", "1e999 in column 2 is too large for f64"),
        ("f64", "9" * 400, "is too large for f64"),
        ("f64", "-1e309", "is too large for f64"),
        ("f32", "1e39", "1e39 in column 2 is too large for f32"),
        ("i64", "1_000", "'1_000' in column 2 is not of type i64"),
        ("i64", "\u0663", "is not of type i64"),
        ("f64", "1_0.5", "'1_0.5' in column 2 is not of type f64"),
    ],
    ids=lambda value: str(value)[:12].encode("ascii", "backslashreplace").decode(),
)
def test_numbers_that_no_value_of_the_type_is(tmp_path, rows, kind, value, message):
    (tmp_path / "r.csv").write_text("1,2\n" * rows + f"3,{value}\n")
    with pytest.raises(ParseError, match=message):
        dv.Program(f"type r(i32, {kind})\nquery r").run({"r": tmp_path / "r.csv"})


@pytest.mark.parametrize("rows", [1, 20_000])
def test_infinities_that_are_written_are_read(tmp_path, rows):
    (tmp_path / "r.csv").write_text("1,2\n" * rows + "3,inf\n4,-Infinity\n5,1e308\n")
    found = dv.Program("type r(i32, f64)\nquery r").run({"r": tmp_path / "r.csv"})["r"]
    assert set(found) == {(1, 2.0), (3, float("inf")), (4, -float("inf")), (5, 1e308)}


@pytest.mark.parametrize("few_values", [1 << 22, 0])
@pytest.mark.parametrize("kind", ["string", "large_string", "dictionary"])
def test_columns_of_few_texts_are_read_as_their_numbers(tmp_path, calls_of, costs, few_values, kind):
    """Each part of the file has a dictionary of its own, one of them too long for one."""
    count = 6000
    few = [f"text {k % 3 + k // 1000} é" for k in range(count)]
    many = [f"text number {k}" for k in range(count)]
    types = {"string": pa.string(), "large_string": pa.large_string()}
    of = types.get(kind, pa.dictionary(pa.int32(), pa.string()))
    table = pa.table({"few": pa.array(few, of), "many": pa.array(many, types.get(kind)), "n": range(count)})
    parquet.write_table(table, tmp_path / "r.parquet", row_group_size=1000)
    costs(most_at_once=few_values)
    read = calls_of(fact_files, "arrow_column", lambda *given: (given[1], str(given[2].type)))
    program = dv.Program(f'@file("{tmp_path / "r.parquet"}")\ntype r(few: String, many: String, n: i64)\nquery r')
    for limit in ({}, {"tuple_limit": 10 * count}):
        fact_files._files_read.clear()
        assert set(program.run(**limit)["r"]) == set(zip(few, many, range(count)))
    assert all(("dictionary" in t) == (name == "few") for name, t in read if name != "n"), read
