"""The numbers that decide which way a run takes stand in one file, `datalog/policy/costs.py`."""

import ast
import dataclasses
import re
from pathlib import Path

import pytest

from derivable.datalog.policy.costs import Policy

DATALOG = Path(__file__).parents[2] / "src" / "derivable" / "datalog"
# Layouts of words, bits and kernels, codes, bounds of types and of the language, and texts for people; rows of a model
# of costs; and sizes of one algorithm, inside of one file, that no run takes another way by.
LAYOUT = {
    # Values, and what is written in programs and files.
    "aggregates/selection.py": {"_MASK"},
    "aggregates/totals.py": {"_EXACT"},
    "desugar/core.py": {"MAX_CLAUSES"},
    "facts/headers.py": {"HEAD_BYTES", "_FEW_ROWS", "_ROWS"},
    "facts/inputs.py": {"EXACT_DIGITS", "ROUNDING", "_I64_DIGITS", "_PART"},
    "foreign/comparisons.py": {"_NEAR"},
    "foreign/hashing.py": {"_KEYS"},
    "rules/inline.py": {"MOST_ATOMS"},
    "rules/monotone.py": {"_TESTS"},
    "rules/timed.py": {"MOST_CHOICES"},
    "run/demand_facts.py": {"POSSIBLE"},
    "run/foreign_join.py": {"MOST"},
    "scalars/exact.py": {"MOST_POWER"},
    "souffle/arguments.py": {"_DEPTH", "_UNARY"},
    "souffle/clauses.py": {"_MOST"},
    "souffle/components.py": {"_DEPTH", "_MOST"},
    "souffle/preprocess.py": {"_DEPTH", "_MOST"},
    "syntax/expressions.py": {"MOST_DIGITS"},
    "syntax/layout.py": {"_WIDTH"},
    "syntax/reader.py": {"MAX_DEPTH"},
    "types/data_types.py": {"_SHALLOW"},
    "values/datetimes.py": {"_LENGTHS", "_LIMIT", "_MONTH", "_MOST_MONTHS"},
    "values/int128.py": {"BIG", "_EXACT"},
    # Words of the machine, of sets and of proofs.
    "fused/emit_distinct.py": {"REMEMBERED", "MOST_KEYS"},
    "fused/emit_insert.py": {"PAUSED"},
    "fused/emit_intersection.py": {"VALUES_A_WORD"},
    "fused/kernel_steps.py": {"ONE"},
    "fused/kernel_plan.py": {"MOST_LOOPS"},
    "kernels/device_bits.py": {"BITS", "COLUMNS", "PACKED", "ROWS", "WORDS"},
    "kernels/device_proofs.py": {"LONG", "LOOKED_AT", "PIECE", "_FLIPPED"},
    "kernels/fields.py": {
        *("EXPONENT", "MINUS", "NEWLINE", "NINE", "PLUS", "POINT", "RETURN", "ZERO", "_DIGITS", "_DIGITS_OF_FLOAT"),
    },
    "kernels/multi_block_fold.py": {"LOST", "WANTED_SLOTS", "WANTED_SPAN"},
    "kernels/proof_form.py": {"ABSENT_COST", "CHOICE", "MOST_WORDS"},
    "kernels/proof_search.py": {
        "FEW_ROWS",
        "KEY",
        "MOST_ATOMS",
        "MOST_COLUMNS",
        "MOST_VARIABLES",
        "ROWS_A_ROW",
        "UNKNOWN",
    },
    "kernels/proofs.py": {"IMPOSSIBLE", "MOST", "MOST_PAIRS", "ONE", "ZERO"},
    "kernels/relations.py": {"DIGIT_BITS", "SPREAD"},
    "kernels/row_sets.py": {"FIRST_SLOTS", "SMALL_SLOTS", "TOP", "UNIT"},
    "kernels/tag_rows.py": {"LANES"},
    "kernels/texts.py": {"AHEAD"},
    "kernels/triton_proofs.py": {"MOST", "MOST_WORDS", "_FLIPPED"},
    "machine/machine.py": {"TARGET"},
    "machine/merges.py": {"NO_LIMIT", "ONE"},
    "policy/costs.py": {"FEW_PROOFS"},
    "run/orders.py": {"LEAST_WORD"},
    "run/queries.py": {"MOST_CHAINED"},
    "shortcuts/bit_kernels.py": {"WORD"},
    "shortcuts/bit_rows.py": {"INCLUDED", "MOST_ROWS"},
    "shortcuts/condensed.py": {"UNIT_BITS"},
    "shortcuts/emit_best.py": {"EXACT"},
    "tables/packing.py": {"WORD_BITS"},
    "tables/scan.py": {"BLOCK", "LANES", "LEAST_BITS", "MORE_BITS", "MOST_BITS"},
    "tables/sets.py": {"MAX_FIRST"},
    "tags/custom.py": {"_GONE", "_ONE"},
    "tags/proof_store.py": {"FEW", "LOOKS", "PIECE", "ROOM", "SLOTS", "SPARSE", "STATES", "WIDEST"},
    "tags/proof_table.py": {"LOOKS", "ONE", "ZERO"},
    # What is shown.
    "api/database.py": {"_SHOWN_RELATIONS"},
    "api/fact_output.py": {"_ROWS"},
    "api/problog_program.py": {"MOST_ROUNDS"},
    "api/program.py": {"WARM", "_SHOWN_RELATIONS"},
    "api/worlds.py": {"_MOST_CHARACTERS", "_SHOWN_FACTS", "_SHOWN_WORLDS"},
    "api/spilled_relation.py": {"ROWS"},
    "api/relation_view.py": {"_COMPLETED_KEYS", "_SHOWN_COLUMNS", "_SHOWN_ROWS"},
    "reasons/absence.py": {"MOST_COUNTED", "MOST_RESULTS"},
    "reasons/derivations.py": {"LOOKS", "SPARE"},
    "reasons/search.py": {"DERIVED_AT", "LOOKED_AT", "_FIRST_ROOM", "_LOOKS"},
    "reasons/unfold.py": {"MOST_FORMS"},
    "reasons/show.py": {"MOST_DRAWN", "MOST_SHOWN", "OPEN_LEVELS", "_CHARACTER", "_GAP", "_ROW"},
    "run/limits.py": {"LONG_PART", "MANY_ROUNDS"},
    "run/overflow.py": {"MOST_BATCHES"},
    "run/profile.py": {"SHOWN", "_LAST"},
    # Models of costs: nanoseconds of an operator, parts of rows, sizes of statistics, what a device takes.
    "apm/bit_matrices.py": {
        *("DEVICE_BYTE", "EDGE", "HOST_BYTE", "LAUNCH", "LOOK", "MOST_EDGES", "ROUND_BYTES", "TRAVEL_BYTE"),
    },
    "apm/host_strata.py": {"FACT", "INSTRUCTION", "LAUNCHES", "ROUNDS", "ROW"},
    "apm/matrices.py": {"FEW", "MANY", "ROUNDS", "SHARE", "SPREAD"},
    "apm/tag_matrices.py": {"GATHERED", "ROUND_BYTES"},
    "fused/elimination.py": {"FIXED", "PUSH"},
    "ram/assumed.py": {"BEGUN"},
    "ram/estimate.py": {
        *("ABSENT", "COMPARISON", "CONDITION", "DRIVER", "INDEX", "INDEX_CHAIN", "LOOK", "LOOK_CHAIN", "LOOK_TRIE"),
        *("MATCH", "PROBE", "RANGE_ROWS", "SORT", "STORE", "WORD_BITS"),
    },
    "ram/statistics.py": {"ALL_ROWS", "BUCKETS", "SAMPLE", "SLOTS"},
    # What exact inference, aggregates and files keep or take at most.
    "aggregates/counting.py": {"_MANY", "_MOST_STEPS"},
    "aggregates/extremes.py": {"_MOST_STEPS"},
    "aggregates/ordering.py": {"_SMALL"},
    "aggregates/worlds.py": {"MOST_GRAPH_STEPS", "MOST_STEPS", "_TOGETHER"},
    "api/batched.py": {"MOST_TEXTS"},
    "api/spark.py": {"_KEYS_EACH"},
    "api/spark_rounds.py": {"_FOLDED"},
    "api/spark_task.py": {"KEYS", "_BATCH"},
    "api/spilled.py": {"NUM_KEYS", "_FIRST", "_FORM", "_GROWTH", "_MEANT", "_MOST", "_MOST_PARTS"},
    "distribution/keys.py": {"FACTOR", "PRIME"},
    "distribution/parquet.py": {"BATCH"},
    "distribution/session.py": {"SECONDS"},
    "distribution/scalar_sql.py": {"MOST_INTEGER"},
    "exact/approximate.py": {"WIDTH", "_SPEED", "_MOST_CUBES", "_MOST_SPLITS", "_QUIET"},
    "exact/circuit_files.py": {"LEAST_NODES", "MOST_BYTES", "MOST_FILES", "MOST_OF_ALL"},
    "exact/exact.py": {"LEAST_ROOT", "MANY", "SHARE"},
    "exact/ground_program.py": {"MOST_EDGES", "MOST_UNROLLED"},
    "exact/saved_runs.py": {"MOST_FACTS", "MOST_SAVED", "MOST_NODES"},
    "exact/size.py": {"MOST_NODES"},
    "exact/interpretations.py": {"FAILS", "HOLDS", "UNSEEN"},
    "exact/learning.py": {"MOMENTUM", "SQUARES", "TINY"},
    "exact/worlds.py": {"TOGETHER"},
    "exact/unroll.py": {"DEPTH", "MAX_UNROLLED_EDGES"},
    "facts/columns.py": {"MOST_HOLES"},
    "facts/fact_files.py": {"_CACHED_BYTES", "_CACHED_FILES"},
    "facts/parquet_files.py": {"_FIRST_ROWS"},
    "foreign/function.py": {"FEW_ROWS", "LOOK_BYTES"},
    "foreign/predicate.py": {"LOOKS", "MOST"},
}
# Of `Policy`: who adds one takes one away, or says why not.
MOST_NUMBERS = 32


def numbers_of(text: str) -> set[str]:
    """The names of a module that are bound to numbers, or to tuples of them."""
    found = set()
    for node in ast.parse(text).body:
        value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        for target in targets if value is not None else ():
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            values = value.elts if isinstance(value, ast.Tuple) else [value] * len(names)
            found |= {name.id for name, one in zip(names, values) if isinstance(name, ast.Name) and _is_number(one)}
    return found


def _is_number(node: ast.expr) -> bool:
    parts = [part for part in ast.walk(node) if isinstance(part, ast.expr)]
    return all(isinstance(part, (ast.Constant, ast.BinOp, ast.UnaryOp)) for part in parts) and all(
        type(part.value) in (int, float) for part in parts if isinstance(part, ast.Constant)
    )


FILES = [path for path in sorted(DATALOG.glob("*/*.py")) if path.name != "words.py"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(DATALOG).as_posix())
def test_thresholds_stand_in_one_file(path):
    assert numbers_of(path.read_text()) == LAYOUT.get(path.relative_to(DATALOG).as_posix(), set())


def test_each_number_of_the_policy_is_read():
    texts = "".join(path.read_text() for path in FILES)
    names = [one.name for one in dataclasses.fields(Policy)]
    assert [name for name in names if not re.search(rf"policy\(\)\.{name}\b", texts)] == []
    numbers = [one for one in dataclasses.fields(Policy) if type(one.default) in (int, float)]
    assert len(numbers) <= MOST_NUMBERS


def test_the_check_can_fail():
    assert numbers_of("A = 1 << 12\nB, C = 3, -0.5\nD = range(3)\nE = 'x'\nF = f(1)\nG: int = 7") == {
        "A",
        "B",
        "C",
        "G",
    }
