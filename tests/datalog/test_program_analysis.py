"""A points-to analysis of a small Java program: variables, heap and fields, mutually recursive, with virtual calls.

The facts and the answer are Soufflé's own example; the rules are those of Andersen's analysis with a call graph that is
found on the way.
"""

import csv

import derivable as dv
from data import data_path

PROGRAM = """
type ActualParam(index: i32, call: String, from: String), AssignCast(String, String, String, String)
type AssignHeapAllocation(heap: String, to: String, method: String), AssignLocal(from: String, to: String, String)
type AssignReturnValue(call: String, to: String), DirectFieldIndexSignature(String, i32, String)
type DirectSuperclass(String, String), DirectSuperinterface(String, String), FormalParam(i32, String, String)
type HeapAllocationType(String, String), LoadInstanceFieldIndex(base: String, index: i32, to: String, String)
type ReturnVar(String, String), SpecialMethodInvocationBase(String, String)
type SpecialMethodInvocationSignature(String, String), StaticMethodInvocationSignature(String, String)
type StoreInstanceFieldIndex(from: String, base: String, index: i32, String), ThisVar(String, String)
type VarType(String, String), VirtualMethodInvocationBase(String, String)
type VirtualMethodInvocationSignature(String, String)

rel subtype(a, b) = DirectSuperclass(a, b) or DirectSuperinterface(a, b) or (subtype(a, c) and subtype(c, b))
rel calls(c, m) = StaticMethodInvocationSignature(c, m) or SpecialMethodInvocationSignature(c, m)
rel base(c, v) = SpecialMethodInvocationBase(c, v) or VirtualMethodInvocationBase(c, v)
rel calls(c, m) = VirtualMethodInvocationSignature(c, m), VirtualMethodInvocationBase(c, v), points_to(v, _)

rel points_to(v, h) = AssignHeapAllocation(h, v, _)
rel points_to(v, h) = assigned(w, v), points_to(w, h)
rel points_to(this, h) = base(c, v), points_to(v, h), calls(c, m), ThisVar(m, this)
rel points_to(v, h) = LoadInstanceFieldIndex(w, i, v, _), points_to(w, b), field(b, w, i, s), stored(b, s, h)
rel stored(b, s, h) = StoreInstanceFieldIndex(v, w, i, _), points_to(w, b), field(b, w, i, s), points_to(v, h)
rel field(b, w, i, s) = VarType(w, t), DirectFieldIndexSignature(t, i, s), points_to(w, b)

rel assigned(v, w) = AssignLocal(v, w, _)
rel assigned(v, w) = calls(c, m), ActualParam(i, c, v), FormalParam(i, m, w)
rel assigned(v, w) = AssignReturnValue(c, w), calls(c, m), ReturnVar(v, m)
query points_to
"""


def test_points_to_of_java():
    folder = data_path("program_analysis/souffle-java-pointsto")
    program = dv.Program(PROGRAM)
    names = [path.stem for path in (folder / "facts").glob("*.facts")]
    facts = {name: folder / "facts" / f"{name}.facts" for name in names}
    with (folder / "VarPointsTo.csv").open(newline="") as file:
        wanted = {tuple(row) for row in csv.reader(file, delimiter="\t")}
    assert len(wanted) == 20
    assert set(program.run(facts)["points_to"]) == wanted
    database = program.run({name: facts[name] for name in names if name != "AssignHeapAllocation"}, keep=True)
    assert not database["points_to"]
    database.add({"AssignHeapAllocation": facts["AssignHeapAllocation"]})
    assert set(database["points_to"]) == wanted
