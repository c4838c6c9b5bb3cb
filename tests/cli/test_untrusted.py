"""What a program of somebody else may read and write."""

import itertools
import os

import pytest

import derivable as dv
from derivable.cli.main import main
from derivable.core.diagnostics import ParseError
from derivable.core.roots import Roots


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A folder with data of the user's, the program's folder in it, and another one, which is the working directory."""
    for name in ("program", "current", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / "secret.csv").write_text("1\n")
    (tmp_path / "secret.scl").write_text("rel s = {1}")
    (tmp_path / "program" / "near.csv").write_text("2\n")
    (tmp_path / "current" / "here.csv").write_text("3\n")
    (tmp_path / "data" / "far.csv").write_text("4\n")
    (tmp_path / "data" / "far.scl").write_text('@file("far.csv") type s(i32)')
    monkeypatch.chdir(tmp_path / "current")
    return tmp_path


@pytest.fixture
def run(home, capsys):
    """The status, output and errors of `derivable run` for the text of a program."""

    def of(text, *options, command="run"):
        (home / "program" / "p.scl").write_text(text)
        status = main([command, str(home / "program" / "p.scl"), *options])
        return status, *capsys.readouterr()

    return of


def reads(name):
    return f'@file("{name}") type s(i32)\nquery s'


@pytest.mark.parametrize(("name", "number"), [("near.csv", 2), ("here.csv", 3), ("../current/here.csv", 3)])
def test_files_of_the_two_folders_are_read(run, name, number):
    assert run(reads(name)) == (0, f"s({number})\n", "")


@pytest.mark.parametrize(
    "name", ["../secret.csv", "{home}/secret.csv", "link.csv", "folder/secret.csv", "/etc/hostname"]
)
@pytest.mark.parametrize("command", ["run", "explain"])
def test_others_are_not(home, run, name, command):
    (home / "program" / "link.csv").symlink_to(home / "secret.csv")
    (home / "program" / "folder").symlink_to(home)
    status, out, error = run(reads(name.format(home=home)), command=command)
    assert (status, out) == (1, "")
    assert "p.scl:1:1: error: the program may not read /" in error
    assert f"which is not in {home}/program and {home}/current" in error
    assert "--root DIR" in error


@pytest.mark.parametrize("name", ["../secret.scl", "/etc/passwd", "folder/secret.scl"])
def test_nor_is_their_text_in_the_error_of_an_import(home, run, name):
    (home / "program" / "folder").symlink_to(home)
    status, _, error = run(f'rel q = {{1}}\nimport "{name}"\nquery q')
    assert status == 1
    assert "p.scl:2:1: error: the program may not read /" in error
    assert "root:" not in error


def test_an_imported_file_gets_no_further(home, run):
    (home / "program" / "lib.scl").write_text('@file("../secret.csv") type s(i32)')
    status, _, error = run('import "lib.scl"\nquery s')
    assert status == 1
    assert "lib.scl:1:1: error: the program may not read" in error


def test_more_is_allowed_by_name(home, run):
    text = f'import "{home}/data/far.scl"\nquery s'
    assert run(text)[0] == 1
    assert run(text, "--root", str(home / "data")) == (0, "s(4)\n", "")
    assert run(reads("../secret.csv"), "--root", str(home / "data"))[0] == 1
    assert run(reads("../secret.csv"), "--root", str(home)) == (0, "s(1)\n", "")
    assert run(reads("../secret.csv"), "--allow-files") == (0, "s(1)\n", "")
    assert run(reads("../secret.csv"), "--root", str(home), command="explain")[0] == 0


WRITES = 'rel h = {{("changed", 1)}}\n@file("{0}")\nquery h'


@pytest.mark.parametrize("name", ["../secret.csv", "{home}/secret.csv", "near.csv", "{home}/current/here.csv"])
def test_files_are_written_nowhere_by_themselves(home, run, name):
    before = {path: path.read_text() for path in home.rglob("*.csv")}
    status, out, error = run(WRITES.format(name.format(home=home)))
    assert (status, out) == (1, "")
    assert "p.scl:2:1: error: the program may not write /" in error
    assert "-o DIR" in error
    assert {path: path.read_text() for path in home.rglob("*.csv")} == before


def test_files_are_written_in_the_folder_that_is_named(home, run):
    assert run(WRITES.format("x.csv"), "-o", "out")[0] == 0
    assert (home / "current" / "out" / "x.csv").read_text() == '"changed",1\n'
    for name in ("../../program/near.csv", "../here.csv", "link/near.csv"):
        link = home / "current" / "out" / "link"
        if not link.is_symlink():
            link.symlink_to(home / "program")
        status, _, error = run(WRITES.format(name), "-o", "out")
        assert status == 1, name
        assert f"which is not in {home}/current/out" in error
    assert (home / "program" / "near.csv").read_text() == "2\n"


def test_all_files_are_written_for_a_program_that_one_trusts(home, run):
    assert run(WRITES.format("../data/x.csv"), "--allow-files")[:2] == (0, 'h("changed", 1)\n')
    assert (home / "data" / "x.csv").read_text() == '"changed",1\n'


def test_the_same_from_python(home):
    text = reads("../secret.csv")
    assert list(dv.Program(text).run()["s"]) == [(1,)]
    with pytest.raises(ParseError, match="the program may not read"):
        dv.Program(text, roots=["."])
    assert list(dv.Program(text, roots=[".", home]).run()["s"]) == [(1,)]
    # A file that is in a root is read, whatever another place has under its name.
    os.chdir(home / "data")
    (home / "data" / "near.csv").write_text("9\n")
    (home / "program" / "p.scl").write_text(reads("near.csv"))
    program = dv.Program.from_file(home / "program" / "p.scl", roots=[home / "program"])
    assert list(program.run()["s"]) == [(2,)]
    with pytest.raises(ParseError, match="may not read"):
        dv.Program.from_file(home / "program" / "p.scl", roots=[])


def test_roots_are_folders_and_not_beginnings_of_names(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "ab").mkdir()
    assert Roots.of([tmp_path / "a"]).holds(tmp_path / "a" / "x")
    assert not Roots.of([tmp_path / "a"]).holds(tmp_path / "ab" / "x")
    assert not Roots.of([tmp_path / "a"]).holds(tmp_path / "a" / ".." / "ab" / "x")
    assert Roots.of(None).holds("/anything")


# What names a file: (the ending of the program's name, its text), where links lead in a circle or no file can be.
NAMING = {
    "facts": ("scl", '@file("{}.csv")\ntype h(s: String)\nquery h\n'),
    "result": ("scl", 'rel h = {{"a"}}\n@file("{}.csv")\nquery h\n'),
    "import": ("scl", 'import "{}.scl"\n'),
    "ProbLog": ("pl", ":- consult('{}.pl').\nquery(a).\na.\n"),
    "Soufflé's facts": ("dl", '.decl h(s:symbol)\n.input h(filename="{}.csv")\n.output h\n'),
    "Soufflé's result": ("dl", '.decl h(s:symbol)\nh("a").\n.output h(filename="{}.csv")\n'),
    "Soufflé's include": ("dl", '.include "{}.dl"\n.decl h(s:symbol)\n.output h\n'),
}


@pytest.mark.parametrize("options", [(), ("-o", "out"), ("--allow-files",)], ids=" ".join)
@pytest.mark.parametrize("name", ["loop", "a\0b", "a" * 300])
@pytest.mark.parametrize("form", NAMING)
def test_paths_that_lead_nowhere_are_errors_of_ours(home, capsys, form, name, options):
    for folder, ending in itertools.product((home / "current", home / "program"), ("csv", "scl", "pl", "dl")):
        (folder / f"loop.{ending}").symlink_to(f"loop.{ending}")
    ending, text = NAMING[form]
    # A name in Datalog's text has its characters as escapes.
    name = name.replace("\0", "\\0") if ending == "scl" else name
    (home / "program" / f"p.{ending}").write_text(text.format(name))
    status = main(["run", str(home / "program" / f"p.{ending}"), *options])
    error = capsys.readouterr().err
    assert "Traceback" not in error
    # Soufflé's results are printed unless a folder is named; there a link is replaced, and not followed.
    is_printed = form == "Soufflé's result" and "-o" not in options
    is_replaced = form.endswith("result") and name == "loop" and options
    assert status == (0 if is_printed or is_replaced else 1), error


def test_two_queries_have_two_files(home, run):
    text = 'rel a = {1}\nrel b = {2}\n@file("v.csv") query a\n@file("./v.csv") query b'
    status, _, error = run(text, "-o", "out")
    assert status == 1
    assert "p.scl:4:1: error: the queries `a` and `b` are both written to ./v.csv" in error
    assert not (home / "current" / "out").exists()


@pytest.mark.parametrize("text", ["p cnf 2000000000 1\n1 0\n", "nnf 3 2 2000000000\nL 1\nL 2000000000\nA 2 0 1\n"])
def test_counts_of_millions_of_digits_are_not_written(home, capsys, text):
    """Half a GB of digits, of a file of a line: 2,000,000,000 log10(2) of them."""
    name = "many.cnf" if text.startswith("p") else "many.nnf"
    (home / "current" / name).write_text(text)
    assert main(["count", name]) == 1
    assert "the count has 602,059,99" in capsys.readouterr().err


@pytest.mark.parametrize("limit", ["9" * 400, "9" * 400 + " GB", "9" * 300 + "TB"])
def test_sizes_beyond_all_memory(run, limit):
    status, _, error = run("rel a = {1}\nquery a", "--memory-limit", limit)
    assert status == (0 if limit.endswith("TB") else 1), error
    assert "Traceback" not in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--samples", str(10**25)], "there is not enough memory for the run"),
        (["--engine", "sail", "--partitions", str(10**20)], "not in the range 1<=x<="),
    ],
)
def test_numbers_that_are_too_large_for_any_machine(run, options, message):
    status, _, error = run("rel 0.5::a(1)\nquery a", *options)
    assert status == 1
    assert message in error


@pytest.mark.parametrize("name", ["../current/here.csv", "{home}/current/here.csv", "../secret.csv"])
def test_programs_of_souffle_write_in_the_folder_of_the_output_alone(home, name, capsys):
    """They read in the working directory too."""
    text = f'.decl s(x:number)\ns(5).\n.output s(IO=file, filename="{name.format(home=home)}")'
    (home / "program" / "p.dl").write_text(text)
    status = main(["run", str(home / "program" / "p.dl"), "-o", "out"])
    assert status == 1
    assert "the program may not write" in capsys.readouterr().err
    assert (home / "current" / "here.csv").read_text() == "3\n"
    assert (home / "secret.csv").read_text() == "1\n"


@pytest.mark.parametrize("name", ["x" * 300 + ".csv", "../" + "/".join("y" * 200 for _ in range(30)) + "/x.csv"])
@pytest.mark.parametrize("roots", [["."], None])
def test_names_that_no_system_has_are_refused(home, name, roots):
    (home / "program" / "p.scl").write_text(reads(name))
    with pytest.raises(dv.DerivableError):
        dv.Program.from_file(str(home / "program" / "p.scl"), roots=roots).run()


def test_the_root_is_no_program_of_problog(home, capsys):
    (home / "program" / "p.pl").write_text(":- consult('/').\nquery(s(X)).")
    assert main(["run", str(home / "program" / "p.pl")]) == 1
    assert "Traceback" not in capsys.readouterr().err
