"""Which sources a module has, what is written for a design, and what is said when something cannot be built."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from derivable.accelerator.hardware import elaboration, verilator
from derivable.accelerator.machine.instructions import Machine
from derivable.core.diagnostics import DerivableError, DomainError, MissingDependencyError


def test_a_module_comes_with_what_it_uses_and_nothing_else():
    made = elaboration.hardware("sub_array", {"H": 4})
    assert made.sources == ["array_row.sv", "multiplier.sv", "processing_element.sv", "sub_array.sv"]
    assert "isa.svh" in elaboration.hardware("array_engine").files


def test_the_hierarchy_on_the_page_is_that_of_the_sources():
    page = (Path(__file__).parents[2] / "docs" / "accelerator.md").read_text()
    rows = re.search(r"```hierarchy\n(.*?)```", page, re.DOTALL)[1].splitlines()
    files, above = elaboration.hardware("kernel").files, []
    for row in rows:
        depth, name = (len(row) - len(row.lstrip())) // 2, row.split()[0]
        del above[depth:]
        if above:
            assert re.search(rf"^ *{name}\b *(#|\w+ *\()", files[f"{above[-1]}.sv"], re.MULTILINE), (
                f"{name} in {above[-1]}"
            )
        above.append(name)
    # What goes without saying, and the tables of functions.
    assert {row.split()[0] for row in rows} | {"delay", "exp2_table", "log2_table"} == {
        name.removesuffix(".sv") for name in files if name.endswith(".sv")
    }


def test_the_digest_depends_on_parameters_and_text():
    extra = {"one.sv": "module one #(parameter int A = 1) (); endmodule\n"}
    made = [
        elaboration.hardware("one", extra=extra),
        elaboration.hardware("one", {"A": 2}, extra),
        elaboration.hardware("one", extra={"one.sv": extra["one.sv"] + "\n"}),
    ]
    assert len({found.digest for found in made}) == 3
    assert made[0].digest == elaboration.hardware("one", extra=extra).digest


def test_unknown_modules_and_parameters_are_named():
    with pytest.raises(DomainError, match=r"no module sub_aray\n.*`sub_array`"):
        elaboration.hardware("sub_aray")
    with pytest.raises(DomainError, match="sub_array has no parameter N"):
        elaboration.hardware("sub_array", {"N": 2})


def test_parameters_are_printed_into_the_top(tmp_path):
    machine = Machine(height=16, width=4, sub_arrays=3, lanes=4, line=16, a=64)
    made = elaboration.hardware("array_engine", elaboration.parameters_of("array_engine", machine))
    folder = elaboration.write(made, tmp_path / "design" / "rtl")
    top = (folder / "array_engine.sv").read_text()
    for text in ("int H       = 16,", "int W       = 4,", "int N       = 3,", "int A_WORDS = 64,", "$clog2(A_WORDS)"):
        assert text in top
    assert (folder / "files.f").read_text().split() == ["+incdir+.", *made.sources]
    assert sorted(path.name for path in folder.iterdir()) == sorted([*made.files, "files.f"])


@pytest.mark.parametrize("module", ["accelerator", "cache", "queue", "vector_unit"])
def test_ports_are_those_that_yosys_reads(module, tmp_path):
    if shutil.which("yosys") is None:
        pytest.skip("yosys is not installed")
    values = elaboration.parameters_of(module, Machine(height=8, width=4, sub_arrays=3, lanes=8, line=64, a=64))
    made = elaboration.hardware(module, values)
    folder = elaboration.write(made, tmp_path / "rtl")
    script = f"read_verilog -sv {' '.join(made.sources)}; hierarchy -top {module}; proc; write_json ports.json"
    subprocess.run(["yosys", "-q", "-p", script], cwd=folder, check=True)
    read = json.loads((folder / "ports.json").read_text())["modules"][module]["ports"]
    assert elaboration.ports(made) == {name: (port["direction"], len(port["bits"])) for name, port in read.items()}


def test_checks_are_no_part_of_a_design():
    assert "handshake.sv" not in elaboration.hardware("kernel").files
    assert "handshake.sv" in elaboration.hardware("device_bench").files


def test_a_folder_is_replaced_only_if_it_is_a_design(tmp_path):
    made = elaboration.hardware("sub_array")
    folder = elaboration.write(made, tmp_path / "rtl")
    (folder / "old.sv").write_text("")
    assert not (elaboration.write(made, folder) / "old.sv").exists()
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(DerivableError, match="the folder has other files"):
        elaboration.write(made, other)
    assert (other / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other", "rtl"]


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DerivableError, match="cannot write the folder"):
        elaboration.write(elaboration.hardware("sub_array"), tmp_path / "file" / "rtl")


def test_without_verilator_the_error_says_how_to_install_it(monkeypatch):
    monkeypatch.setattr(verilator, "version", lambda: None)
    with pytest.raises(MissingDependencyError, match="apt-get install verilator"):
        verilator.build(elaboration.hardware("skew"), {})


@pytest.mark.skipif(verilator.version() is None, reason="Verilator or g++ is not installed")
def test_what_does_not_build_is_shown_and_not_kept(monkeypatch, tmp_path):
    monkeypatch.setattr(verilator, "cache_directory", lambda: tmp_path)
    wrong = elaboration.hardware(
        "wrong", extra={"wrong.sv": "module wrong (input wire clk);\n  asign a = clk;\nendmodule\n"}
    )
    with pytest.raises(DomainError, match=r"verilator does not build `wrong`: .*wrong\.sv:2"):
        verilator.build(wrong, {})
    with pytest.raises(DomainError, match=r"g\+\+ does not build `skew`: .*harness\.cpp:1"):
        verilator.build(elaboration.hardware("skew"), {"harness.cpp": "int f() { return missing; }\n"})
    assert not [path for path in tmp_path.iterdir() if path.suffix == ".so" or path.is_dir()]


@pytest.mark.skipif(verilator.version() is None, reason="Verilator or g++ is not installed")
def test_two_builders_build_once(monkeypatch, tmp_path):
    """One builds while the other waits; both then have the same library."""
    text = (
        "import sys; from pathlib import Path; from derivable.accelerator.hardware import elaboration, verilator; "
        "built = []; build = verilator._build; "
        "verilator._build = lambda *given: (built.append(1), build(*given)); "
        "print(verilator.build(elaboration.hardware('skew', {'LANES': 2}), {'h.cpp': '// ' + sys.argv[1]}), len(built))"
    )
    monkeypatch.setenv("DERIVABLE_CACHE_DIR", str(tmp_path))
    command = [sys.executable, "-c", text, "x"]
    started = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    said = sorted(process.communicate(timeout=200)[0].split() for process in started)
    assert said[0][0] == said[1][0]
    assert sorted(count for _, count in said) == ["0", "1"]
