"""What texts of others can do to a terminal, and to the names of files: nothing."""

import sys

import pytest

import derivable as dv
from derivable.cli.main import main
from derivable.core.terminal import visible

EVIL = "\x1b]0;PWN\x07\x1b[31mred\x9b0m\x7f"


@pytest.fixture
def terminal(capsys, monkeypatch):
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda stream: True, raising=False)


def is_harmless(text):
    return not any((ord(c) < 32 and c not in "\t\n") or 127 <= ord(c) < 160 for c in text)


def test_controls_have_pictures():
    assert visible(EVIL) == "\u241b]0;PWN\u2407\u241b[31mred\ufffd0m\u2421"
    assert visible("a\tb\n\u00d6") == "a\tb\n\u00d6"
    for code in range(0x250):
        assert is_harmless(visible(chr(code)))


def test_tables_on_a_terminal(tmp_path, capsys, terminal):
    (tmp_path / "p.scl").write_text(f'rel h = {{("{EVIL}", "[bold]x[/bold]")}}\nquery h\nquery h("{EVIL}", x)')
    assert main(["run", str(tmp_path / "p.scl")]) == 0
    # The table itself has bold letters.
    out = capsys.readouterr().out.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert is_harmless(out)
    assert "\u241b]0;PWN" in out
    assert "[bold]x[/bold]" in out


def test_pipes_and_files_have_texts_as_they_are(tmp_path, capsys):
    (tmp_path / "p.scl").write_text(f'rel h = {{"{EVIL}"}}\nquery h')
    assert main(["run", str(tmp_path / "p.scl")]) == 0
    assert EVIL in capsys.readouterr().out
    assert main(["run", str(tmp_path / "p.scl"), "-o", str(tmp_path / "out")]) == 0
    assert EVIL in (tmp_path / "out" / "h.csv").read_text()


def test_messages_of_errors(tmp_path, capsys):
    path = tmp_path / "p.scl"
    path.write_text(f'rel h(x) = x == "{EVIL}" + 1')
    assert main(["run", str(path)]) == 1
    assert is_harmless(capsys.readouterr().err)
    (tmp_path / "e.csv").write_text(f"1,{EVIL}\n")
    with pytest.raises(dv.DerivableError) as caught:
        dv.Program("type e(i32, i32)").run({"e": tmp_path / "e.csv"})
    assert is_harmless(str(caught.value))


def test_explanations_on_a_terminal(tmp_path, capsys, terminal):
    (tmp_path / "p.scl").write_text(f'rel h = {{"{EVIL}"}}\nrel k(x) = h(x), x != "{EVIL}"\nquery k')
    assert main(["explain", str(tmp_path / "p.scl"), "--stage", "syntax"]) == 0
    assert is_harmless(capsys.readouterr().out)


def test_names_of_files_are_no_paths(tmp_path, capsys):
    (tmp_path / "p.scl").write_text(
        'rel p = {("a/b", 1), ("/../evil", 2), ("a%2Fb", 3), ("\x1b", 4)}\n'
        'query p("a/b", x)\nquery p("/../evil", x)\nquery p("a%2Fb", x)\nquery p("\x1b", x)'
    )
    (tmp_path / "out" / 'p("').mkdir(parents=True)
    assert main(["run", str(tmp_path / "p.scl"), "-o", str(tmp_path / "out")]) == 0
    files = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    names = ["a%2Fb", "%2F..%2Fevil", "a%252Fb", "%1B"]
    assert files == {f'p("{name}", x).csv' for name in names}
    assert {p.name for p in tmp_path.iterdir()} == {"p.scl", "out"}
    assert is_harmless(capsys.readouterr().err)


@pytest.mark.parametrize("path", ["\0", "a\0b.scl"])
def test_a_file_to_import_has_a_name(tmp_path, capsys, path):
    (tmp_path / "p.scl").write_text(f'rel p = {{1}}\nimport "{path}"')
    for command in ("run", "explain"):
        assert main([command, str(tmp_path / "p.scl")]) == 1
        assert "p.scl:2:1: error" in capsys.readouterr().err


def test_letters_keep_their_order():
    assert visible("a\u202eb\u2066c") == "a\ufffdb\ufffdc"
    assert visible("\u0639\u0644\u064a\u200f") == "\u0639\u0644\u064a\u200f"
