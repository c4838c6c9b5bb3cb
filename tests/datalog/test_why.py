"""Proofs of tuples, checked by a checker that reads the rules again, and why there are none."""

import pytest
from hypothesis import strategies as st

import derivable as dv
from datalog import programs
from datalog.proof_checker import check, heights
from derivable.core.diagnostics import AbsentTupleError
from derivable.datalog.ram.interpret import interpret
from derivable.datalog.ram.lower import lower
from derivable.datalog.rules.new_terms import with_terms
from derivable.datalog.rules.strata import stratify
from drawn import examples


@examples(25, 2000, st.data(), programs.sources(rule=programs.RichRule), programs.inputs())
def test_proofs_of_drawn_programs_are_proofs_of_least_height(data, source, facts):
    program = dv.Program(source.text(source.derived))
    database = program.run(facts)
    model = interpret(lower(stratify(with_terms(program.desugared()))), facts)
    least = heights(program, facts, model)
    for name in source.derived:
        rows = sorted(database[name])
        assert set(rows) == model[name]
        for row in data.draw(st.permutations(rows))[:4]:
            proof = database.why(name, row)
            check(proof, facts, model)
            assert (proof.relation, proof.row) == (name, row)
            assert proof.height == least[name][row]
        types = source.relations[name]
        absent = data.draw(st.tuples(*(st.integers(0, 4) if t == "i" else st.sampled_from("abc") for t in types)))
        if absent not in model[name]:
            with pytest.raises(AbsentTupleError):
                database.why(name, absent)
            attempts = database.why_not(name, absent, depth=2).attempts
            assert len(attempts) >= sum(rule.startswith(f"rel {name}(") for rule in source.rules)
