"""What things cost, in one place: every number that decides which way a run takes, with its unit and where it was
measured (`docs/decisions/`, by number, or `benchmarks/`).

A run reads them from the policy of the code that calls it. Tests have other ones for a block by `under`, which reaches
layers, databases that grow, and whatever else begins a run.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

# Proofs of two sets whose products take long (097); a compiled kernel reads it.
FEW_PROOFS = 8


@dataclass(frozen=True)
class Policy:
    """Which shortcuts a run may take, and what it takes things to cost. Numbers without a unit are rows."""

    # The shortcuts that recursions may take, of `shortcuts.SHORTCUTS`, in this order; None for all.
    shortcuts: tuple[Any, ...] | None = None

    # Kernels (054, 073).
    # Seen by a store before its kernel is used if it is on disk, and before it is compiled, which takes 20 to 100 ms.
    few_rows: int = 1 << 12
    many_rows: int = 1 << 14
    # Kernels that are compiled in one call for small runs.
    few_kernels: int = 8
    # What a look at a store that finds nothing costs, and what a call of a kernel from Python does.
    call_rows: int = 16
    small_round: int = 1 << 8
    # Of a round, from which rows wait for better tags where these have an order.
    large_round: int = 1 << 14
    # Joins of a kernel, one loop inside the other.
    most_loops: int = 8
    # Rows of a segment from which a kernel folds its tags sooner than columns do.
    long_segment: int = 64

    # Pieces of work.
    # Made over columns at once; those that stay in cache from one step to the next; those between two looks at the
    # limits, and seconds between these (054).
    chunk: int = 1 << 16
    cache_rows: int = 1 << 14
    look_rows: int = 1 << 18
    look_seconds: float = 0.02
    # What a table has room for at first, and rows that are not worth another way of doing anything.
    first_rows: int = 1 << 6
    few: int = 1 << 10
    # Candidates with tags that wait to be added up.
    candidates: int = 1 << 12
    # Of a driver that a kernel of many atoms first goes through.
    driven_first: int = 1 << 8
    # That are worth a thread (001), and words from which they are sorted by digits (080).
    shared_rows: int = 1 << 17
    digit_words: int = 1 << 14
    # Operators up to which iterators are made of iterators, a call in C for each.
    most_chained: int = 64
    # Plans, or combinations of relations with news, that are remembered.
    most_plans: int = 1 << 12

    # Tables (051, 080).
    # From which a table has sets by prefix; prefixes from which it needs more rows than these.
    set_rows: int = 1 << 12
    many_prefixes: int = 1 << 16
    # Candidates from which they are sorted, and those that are sorted at once; then times the rows there are. Repeats
    # of which a set drops most. Times that columns are wider than expected.
    bulk_rows: int = 1 << 12
    # Marks for each row of those in which repeats of a column are looked for.
    key_bytes: int = 8
    most_bulk: int = 1 << 22
    bulk_times: int = 2
    bulk_repeats: int = 4
    most_packings: int = 8
    # From which a finished table gets a layer; rows below it for each of it; the part of all rows that a rule goes
    # through before a layered table is worth one log, and a new set with it (`benchmarks/removal.py`).
    layer_rows: int = 1 << 12
    layer_times: int = 4
    one_log_part: float = 1 / 64
    new_set_part: float = 1 / 4
    # Passes over a table that few keys are looked for by, and rows of it for each of them; times that a set costs what
    # an index does.
    most_passes: int = 32
    rows_a_pass: int = 64
    set_times: int = 8

    # Joins (058).
    # Atoms up to which all orders are compared; rows of all atoms from which an order is chosen; what it must cost of
    # the order without sizes, and nanoseconds that it must save; nanoseconds to estimate one more atom.
    ordered_atoms: int = 6
    planned_rows: int = 512
    clearly: float = 0.7
    least_saving_ns: float = 20_000.0
    plan_ns: float = 80_000.0
    # Of a complete relation that may be joined with all that there is.
    few_matches: int = 16
    # Nanoseconds from which a store is looked at for columns that nothing needs, and in all orders, if it has so few
    # atoms; the part of them that may be left; how much dearer than estimated a row may be.
    least_parted_ns: float = 1e6
    least_ordered_ns: float = 10e6
    parted_atoms: int = 4
    part_left: float = 0.5
    part_dear: float = 3.0
    # How many times the rows are of those that an order was chosen for when it is chosen again.
    far_off: int = 16
    # That a clause of a recursion is estimated to find when it is cut, and rows of all its relations.
    cut_rows: int = 1 << 21
    cut_sizes: int = 1 << 15
    # Batches of the rows of a rule that are looked at for integers that left their type.
    most_batches: int = 64

    # Small runs of a program that is run again and again (`benchmarks/front_doors.py`).
    # Of a table that no recursion has; facts for each store.
    most_small: int = 1 << 15
    facts_a_store: int = 4

    # Limits, and what is shown of a run.
    # Seconds before anything is shown, and between changes of it.
    quiet_seconds: float = 1.0
    show_seconds: float = 0.1
    # The part of the memory that a run could have had which it leaves; of its time, from which its end is laid to one
    # rule; bytes of texts that are made before anybody looks.
    reserved_part: float = 0.1
    long_part: float = 0.25
    few_bytes: int = 1 << 20

    # Rows that wait for better tags (081).
    # Levels that rows are split into; rows of a round at least, at first, and times those from which levels are made.
    levels: int = 64
    least_level: int = 1 << 9
    level_rows: int = 1 << 14
    level_rounds: int = 4

    # Best first (081).
    # Levels of the queue of a prefix; cells of tags, and tags of a sample, for each.
    queue_levels: int = 1 << 10
    cells_a_level: int = 4
    # Entries that a queue has more than rows; entries of the lowest level that are worth levels.
    queue_rows: int = 1 << 12
    few_entries: int = 1 << 8
    # Prefixes that are propagated first, and times those after them.
    first_prefixes: int = 16
    prefix_times: int = 4
    # Values of the last column; rows of a table from which at least one in `waiting_part` has to wait; times that rows
    # are propagated before rounds go on.
    most_values: int = 1 << 24
    unordered_rows: int = 1 << 20
    waiting_part: int = 8
    most_times: int = 8

    # Rows of bits (087).
    # Pairs from which they are looked at; words for each pair; columns of a sample; rules.
    few_pairs: int = 1 << 16
    words_a_pair: int = 8
    sampled_columns: int = 1 << 8
    most_rules: int = 1 << 8
    # Nanoseconds of a pair, of a word that is made and read, and of one that goes into another row.
    pair_ns: float = 15.0
    word_ns: float = 12.0
    included_ns: float = 0.5
    # Bytes that are always allowed, and those for each pair. Times that rules may make them more, and matrices.
    small_bytes: int = 1 << 26
    bytes_a_pair: int = 16
    most_words: int = 8
    most_matrices: int = 1 << 10
    # Words that stay in cache; words between two looks at the limits; words that are worth a thread.
    stripe: int = 32
    look_words: int = 1 << 25
    shared_words: int = 1 << 15

    # Union-find.
    # Times the pairs that values lie apart and are numbered without sorting; members whose classes are looked at, and
    # what a large class has.
    dense: int = 4
    sampled_members: int = 64
    large_class: int = 24


STANDARD = Policy()
_current: ContextVar[Policy] = ContextVar("policy", default=STANDARD)
# The policy of the code that runs.
policy = _current.get


@contextmanager
def under(**changes: Any) -> Iterator[None]:
    """Have what runs in a block run under a policy that differs in these fields."""
    token = _current.set(replace(policy(), **changes))
    try:
        yield
    finally:
        _current.reset(token)
