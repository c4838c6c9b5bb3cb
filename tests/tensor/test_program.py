"""Programs of SDQLite: what they take, what they give, what they look like."""

import pytest

from derivable.core.diagnostics import BindingError
from derivable.tensor import nodes as t
from derivable.tensor.program import Program
from derivable.tensor.types import REAL, tensor

A, X = t.Var("A"), t.Var("X")
MATVEC = t.Sum("i", "r", A, t.Singleton(t.Var("i"), t.Sum("j", "a", t.Var("r"), t.Lookup(X, t.Var("j")))))
INPUTS = {"A": tensor(2), "X": tensor(1)}


def test_a_program_has_a_type_and_never_changes():
    program = Program(MATVEC, INPUTS)
    assert program.type == tensor(1)
    assert Program(t.Zero(), {}).type == REAL
    with pytest.raises(TypeError):
        program.inputs["B"] = REAL
    with pytest.raises(BindingError, match="nothing is called `X`"):
        Program(MATVEC, {"A": tensor(2)})


def test_programs_of_the_same_text_are_equal():
    program = Program(MATVEC, INPUTS)
    assert {program: 1}[Program(MATVEC, INPUTS)] == 1
    assert program != Program(X, INPUTS)
    assert Program(X, {"X": tensor(1)}) != Program(X, {"X": tensor(2)})
