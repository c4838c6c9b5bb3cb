"""The cost model: every number that decides which way a run takes, with its unit, and where it was
measured: `docs/decisions/`, by number, or `benchmarks/`.

A run reads them from the policy of the code that calls it. Tests have other ones for a block by `under`, which reaches
layers, databases that grow, and whatever else begins a run. What an operator of a query costs is in `ram.estimate`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from copy import copy
from dataclasses import dataclass
from typing import Any

from derivable.datalog.policy.kernels import COMPILED, Kernels
from derivable.device.cpu import available

# Proofs of two sets whose products take long (097); a compiled kernel reads it.
FEW_PROOFS = 8


@dataclass(frozen=True)
class Policy:
    """Which shortcuts a run may take, what its kernels run by, and what it takes things to cost. Numbers without a unit
    are rows."""

    # The shortcuts that recursions may take, of `shortcuts.SHORTCUTS`, in this order; None for all.
    shortcuts: tuple[Any, ...] | None = None
    kernels: Kernels = COMPILED
    # Who knows what memory this process has, and can get.
    memory: Any = available
    # What makes the columns of a device, of its name; None for `bridge.torch_columns.Torch`.
    device: Callable[[Any], Any] | None = None
    # Whether joins are rewritten so that they look at rows within bounds, and by keys that are computed.
    narrows_joins: bool = True
    # Whether a run of few facts, `few` and `call_rows` for each of its rules, is one call of the driver (097,
    # `benchmarks/front_doors.py`).
    has_small_runs: bool = True

    # Kernels (054, 073): loading one that is on disk pays from few rows on that a store has seen, compiling one, which
    # takes 20 to 100 ms, from many; as many are compiled in one call for small runs.
    few_rows: int = 1 << 12
    many_rows: int = 1 << 14
    few_kernels: int = 8
    # A look at a store that finds nothing costs as much as these rows over columns, a call of its kernel from Python as
    # much as the rows of a small round, from which an order of joins is chosen (058).
    call_rows: int = 1 << 4
    small_round: int = 1 << 8

    # Pieces of work: made over columns at once; that stay in cache from one step to the next; between two looks at the
    # limits, with the seconds that these take (054).
    chunk: int = 1 << 16
    cache_rows: int = 1 << 14
    look_rows: int = 1 << 18
    look_seconds: float = 0.02
    # What memory is made for at first, and rows that are not worth another way of doing anything.
    first_rows: int = 1 << 6
    few: int = 1 << 10
    # What may be worth one: texts as bytes in an arena, since looks into a large dictionary wait for memory one by one;
    # rows that a round propagates best tag first (081); bytes of a file for Arrow, whose import takes longer than few
    # lines.
    many: int = 1 << 16
    # And what is done at once even so: candidates that are sorted (080), values of a Parquet file that are read, rows
    # that a clause of a recursion is estimated to find before it is cut in two (058).
    most_at_once: int = 1 << 22
    # Rows that are worth a thread (001).
    shared_rows: int = 1 << 17
    # Orders of joins that are compared, plans, or combinations of relations with news, that are remembered.
    most_plans: int = 1 << 12
    # Rows of a recursion that become recent at once, the last ones first.
    piece_rows: int = 1 << 12

    # Tables: from which one has sets by prefix, or a layer when it is finished (051), and its candidates are sorted.
    set_rows: int = 1 << 12
    # Rows below a layer for each of it, and passes that a set costs; rows of a table for each that a pass looks for;
    # the part of a stratum up to which its rows are removed one by one: one takes 400 to 600 ns, one that is computed
    # again 17 to 100 (`benchmarks/removal.py`).
    layer_times: int = 4
    rows_a_pass: int = 1 << 6
    recomputed_part: float = 0.06

    # Joins (058): nanoseconds to estimate one more atom of an order; the part of the cost as written that another way
    # may have.
    plan_ns: float = 80_000.0
    clearly: float = 0.7
    # Nanoseconds of a search for a key or a bound in an ordered index.
    search_ns: float = 60.0
    # How many times what was expected something may be before it is planned again or abandoned, such as to look for few
    # keys by passes over a table, before it gets an index (`benchmarks/removal.py`).
    far_off: int = 1 << 4

    # Words of bits that lists of values may have for each row of the table, and for each if they are not more than so
    # many in all.
    bit_words: tuple[int, int, int] = (1, 8, 1 << 18)

    # Instances of rules that a question for proofs looks at before it takes what it has.
    most_instances: int = 400_000
    # Seconds after which bounds are no longer searched first, compiled, searched, and sampled, where there is no limit
    # of time: in proportion to that, where there is one.
    bound_seconds: tuple[float, float, float, float] = (1.0, 4.0, 6.0, 10.0)

    # Limits: seconds before anything is shown of a run; the part of the memory that it leaves.
    quiet_seconds: float = 1.0
    reserved_part: float = 0.1

    # Ordered tags (081): levels that the rows that wait are split into.
    levels: int = 1 << 8

    # Rows of bits (087): pairs from which they are considered, and pairs that are derived round by round in the time in
    # which a word of them is made and read.
    few_pairs: int = 1 << 12
    pairs_a_word: float = 1.0
    # Bytes that an array over all values may always take, and those for each pair to come; and bytes of facts that an
    # engine sends to all of its partitions: messages of Spark Connect have at most twice as many (109).
    small_bytes: int = 1 << 26
    bytes_a_pair: int = 16


STANDARD = Policy()
_current: ContextVar[Policy] = ContextVar("policy", default=STANDARD)
# The policy of the code that runs.
policy = _current.get


@contextmanager
def under(**changes: Any) -> Iterator[None]:
    """Have what runs in a block run under a policy that differs in these fields."""
    # As of `replace`, which takes longer than a small change of facts can spare.
    made = copy(policy())
    assert changes.keys() <= vars(made).keys(), changes
    vars(made).update(changes)
    token = _current.set(made)
    try:
        yield
    finally:
        _current.reset(token)
