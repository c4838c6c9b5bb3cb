"""Bad programs, facts and tensors are errors of ours, as in `test_bad_circuit_input`."""

import numpy as np
import pytest

import derivable as dv
from robust.refusal import refuses

EDGES = "type edge(i32, i32)\nrel path(a, b) = edge(a, b)\nrel path(a, c) = path(a, b), edge(b, c)\nquery path"


@pytest.mark.parametrize(
    "facts",
    [
        {"edges": [(0, 1)]},
        {"edge": [(0, 1, 2)]},
        {"edge": [(0,)]},
        {"edge": [(0, "a")]},
        {"edge": [(0, 1.5)]},
        {"edge": [(0, None)]},
        {"edge": [(0, 2**40)]},
        {"edge": 3},
        {"edge": "ab"},
        {"edge": np.zeros((3, 3), np.int32)},
        {"edge": np.zeros(3, np.int32)},
        {"edge": np.zeros((3, 2), np.complex128)},
        {"edge": np.array([[0.5, 1.5]])},
        {3: [(0, 1)]},
        [("edge", (0, 1))],
    ],
    ids=str,
)
def test_facts(facts):
    refuses(dv.Program(EDGES).run, facts=facts)


def test_programs():
    for text in ["rel", "rel a(x)", "rel a(x) = b(x)\nquery c", "\x00", "rel a = {", "type a(int99)", 'rel a = {"']:
        refuses(lambda text=text: dv.Program(text).run())
    refuses(dv.Program, None)
    refuses(dv.Program, 3)
    refuses(dv.Program.from_file, "missing.scl")
    program = dv.Program(EDGES)
    refuses(program.run, provenance="exactly")
    refuses(program.run, provenance=3)
    refuses(program.explain, "rom")
    database = program.run(facts={"edge": []})
    assert len(database["path"]) == 0
    refuses(lambda: database["route"])


# nn

SUM = "type digit_1(i32)\ntype digit_2(i32)\nrel sum_2(a + b) = digit_1(a), digit_2(b)"


def logic(**changes):
    options = {
        "inputs": {"digit_1": dv.categorical(range(10)), "digit_2": dv.categorical(range(10))},
        "outputs": {"sum_2": range(19)},
        "provenance": "exact",
    }
    return dv.nn.Logic(SUM, **(options | changes))


@pytest.mark.parametrize(
    "changes",
    [
        {"inputs": {"digit": dv.categorical(range(10))}},
        {"inputs": {"digit_1": range(10), "digit_2": range(10)}},
        {"inputs": {"digit_1": dv.categorical(["a"]), "digit_2": dv.categorical(range(10))}},
        {"inputs": {}},
        {"inputs": None},
        {"outputs": {"sum_3": range(19)}},
        {"outputs": {"sum_2": ["a"]}},
        {"outputs": {}},
        {"outputs": None},
        {"provenance": "exactly"},
    ],
    ids=str,
)
def test_logic_construction(changes):
    if changes == {"inputs": {}}:
        pytest.skip("no inputs: every output is constant")
    refuses(logic, **changes)


def test_logic_inputs():
    import torch

    layer = logic()
    p = torch.full((4, 10), 0.1)
    assert layer(digit_1=p, digit_2=p).shape == (4, 19)
    assert layer(digit_1=p[:0], digit_2=p[:0]).shape == (0, 19)
    refuses(layer, digit_1=p)
    refuses(layer, digit_1=p, digit_2=p, digit_3=p)
    refuses(layer, digit_1=p, digit_2=p[:, :9])
    refuses(layer, digit_1=p, digit_2=p[:3])
    refuses(layer, digit_1=p, digit_2=torch.full((4, 10), float("nan")))
    refuses(layer, digit_1=p, digit_2="p")


def test_input_mappings():
    refuses(dv.categorical, [])
    refuses(dv.categorical, {1, 2})
    refuses(dv.categorical, 3)
    refuses(dv.independent, {1, 2})
    refuses(dv.independent, None)


@pytest.mark.parametrize(
    "option", [{"iteration_limit": "x"}, {"iteration_limit": -1}, {"time_limit": "x"}, {"time_limit": -1}]
)
def test_limits(option):
    refuses(dv.Program("rel p = {1}").run, **option)


@pytest.mark.parametrize("name", [3, None, 1.5])
def test_names(name):
    refuses(dv.Program("rel p = {1}").run().__getitem__, name)
    program, one = "rel q(x) = p(x)", dv.categorical(range(2))
    refuses(dv.nn.Logic, program, {name: one}, {"q": [1]})
    refuses(dv.nn.Logic, program, {"p": one}, {name: [1]})
    refuses(dv.nn.Logic, program, {"p": one}, {"q": [1]}, name)
    refuses(dv.nn.Logic, program, {"p": one}, {"q": [1]}, "topkproofs", k=str(name))
    refuses(dv.nn.Logic, program, {"p": one}, {"q": [1]}, facts=str(name))


@pytest.mark.parametrize("probabilities", ["x", ["a", "b"], [None, {}]])
def test_probabilities_that_are_no_numbers(probabilities):
    refuses(dv.categorical, [1, 2], probabilities)
    refuses(dv.independent, [1, 2], probabilities)
