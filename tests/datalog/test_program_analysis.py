"""Programs that Soufflé has as examples, with its facts and its answers; the rules are written anew.

Points-to of Java is Andersen's analysis with virtual calls. LUBM is what the ontology of universities says.
"""

import csv
import gzip
from pathlib import Path

import derivable as dv
from data import data_path

PROGRAMS = Path(__file__).parents[2] / "benchmarks" / "programs"


def facts_of(folder):
    return {path.name.split(".")[0]: path for path in (folder / "facts").glob("[!.]*.facts*")}


def rows_of(path):
    """The rows of a file, in which quotes are characters like others."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        return {tuple(row) for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE)}


def test_points_to_of_java():
    folder = data_path("program_analysis/souffle-java-pointsto")
    program = dv.Program.from_file(PROGRAMS / "java_points_to.scl")
    facts = facts_of(folder)
    wanted = rows_of(folder / "VarPointsTo.csv")
    assert len(wanted) == 20
    assert set(program.run(facts)["points_to"]) == wanted
    heap = {"AssignHeapAllocation": facts.pop("AssignHeapAllocation")}
    database = program.run(facts, keep=True)
    assert not database["points_to"]
    database.add(heap)
    assert set(database["points_to"]) == wanted


def test_what_the_ontology_of_universities_says():
    folder = data_path("program_analysis/souffle-lubm")
    program = dv.Program.from_file(PROGRAMS / "lubm.scl")
    wanted = {path.name.split(".")[0]: rows_of(path) for path in folder.glob("[!.]*.csv*")}
    assert len(wanted) == 20
    facts = facts_of(folder)
    database = program.run(facts)
    assert set(database) == set(wanted)
    for name, rows in wanted.items():
        assert set(database[name]) == rows, name
    late = {name: facts.pop(name) for name in ("takesCourse", "headOf", "undergraduateDegreeFrom")}
    database = program.run(facts, keep=True)
    assert not database["Chair"]
    database.add(late)
    for name, rows in wanted.items():
        assert set(database[name]) == rows, name
