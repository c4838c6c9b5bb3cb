"""Programs of ProbLog, drawn at random and mutated, against ProbLog itself."""

import pytest

import derivable as dv
from datalog.problog.random_programs import (
    Generator,
    answers_of_ours,
    answers_of_problog,
    differences,
    list_program,
    mutated,
)


def disagreements(seeds, program=lambda seed: Generator(seed).text()) -> tuple[list[str], int]:
    """(the programs on which the answers differ, with both; how many were compared)."""
    found, compared = [], 0
    for seed in seeds:
        text = program(seed)
        theirs = answers_of_problog(text)
        try:
            ours = answers_of_ours(text)
        except dv.DerivableError as error:
            if theirs is not None:
                found.append(f"seed {seed}:\n{text}\n{error}")
            continue
        if theirs is None:
            continue
        compared += 1
        wrong = differences(theirs, ours)
        if wrong:
            found.append(f"seed {seed}:\n{text}\n" + "\n".join(wrong))
    return found, compared


def test_random_programs():
    pytest.importorskip("problog")
    # In the last one a tuple derives itself.
    found, compared = disagreements([*range(24), 12_265])
    assert not found, "\n\n".join(found[:3])
    assert compared >= 12


@pytest.mark.slow
@pytest.mark.parametrize("first", range(10_000, 11_000, 100))
def test_many_random_programs(first):
    pytest.importorskip("problog")
    found, compared = disagreements(range(first, first + 100))
    assert not found, "\n\n".join(found[:3])
    assert compared >= 50


def test_random_programs_with_lists():
    pytest.importorskip("problog")
    found, compared = disagreements(range(12), list_program)
    assert not found, "\n\n".join(found[:3])
    assert compared >= 8


@pytest.mark.slow
def test_many_random_programs_with_lists():
    pytest.importorskip("problog")
    found, compared = disagreements(range(1000, 1200), list_program)
    assert not found, "\n\n".join(found[:3])
    assert compared >= 120


def outcome_of_mutation(seed: int) -> str | None:
    """What is wrong about a mutated program: a crash, or another answer than ProbLog's."""
    text = mutated(Generator(seed).text(), seed)
    try:
        ours = answers_of_ours(text)
    except dv.DerivableError:
        return None
    theirs = answers_of_problog(text)
    if theirs is not None and (wrong := differences(theirs, ours)):
        return f"seed {seed}:\n{text}\n" + "\n".join(wrong)
    return None


def test_mutated_programs():
    pytest.importorskip("problog")
    wrong = [found for seed in range(24) if (found := outcome_of_mutation(seed)) is not None]
    assert not wrong, "\n\n".join(wrong[:3])


@pytest.mark.slow
def test_many_mutated_programs():
    pytest.importorskip("problog")
    wrong = [found for seed in range(1000, 1400) if (found := outcome_of_mutation(seed)) is not None]
    assert not wrong, "\n\n".join(wrong[:3])
