"""The limits of a run, and its watch: who looks at the clock, the memory and the tuples between steps.

Every loop over chunks of rows calls `Watch.remaining`, some thousand times a second; what costs system calls is looked
at some fifty times a second.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from derivable.core.arguments import integer, is_integer
from derivable.core.diagnostics import CompileTimeout, DomainError, LimitError, OutOfMemory, Span, UnsupportedError
from derivable.core.progress import Deadline, checked_time_limit, is_seen, progress
from derivable.datalog.aggregates.nodes import AggregateRule
from derivable.datalog.policy.costs import policy
from derivable.datalog.scalars.nodes import NOWHERE
from derivable.device.cpu import compile_time
from derivable.device.cpu.available import shown_bytes
from derivable.device.cpu.memory import empty_cache, kept_bytes, trim

if TYPE_CHECKING:
    from derivable.algebra.semiring import Semiring
    from derivable.datalog.run.execute import Executor
    from derivable.datalog.run.profile import Effort
    from derivable.datalog.tables.storage import Table

Result = TypeVar("Result")
SMALLER = (
    "ask for fewer outputs, compute a relation only where it is asked for by `@demand`, "
    'or keep the best proofs alone: provenance="topkproofs", k=3'
)
# The part of a run's time from which its end is laid to one rule.
LONG_PART = 0.25
# Rounds beyond twice the tuples of a recursion whose tags still get better. Cycles whose gain is a rounding error end
# before, as far as they end.
MANY_ROUNDS = 10_000
EXACT_HINT = "raise time_limit, ask for fewer outputs, or take bounds by approximate=True or provenance='topkproofs'"
ENDLESS_HINT = (
    "give facts tags that are not better than one along a cycle, or stop after some rounds by iteration_limit"
)
_UNITS = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"b": 1, "kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}


@dataclass(frozen=True)
class Limits:
    """What a run may take; None is no limit.

    iteration_limit  rounds of each recursive stratum, after which the run goes on with what there is
    round_limit      rounds of each recursive stratum, after which LimitError is raised
    tuple_limit      tuples of all relations together
    time_limit       seconds
    memory_limit     bytes that the run adds to the process; a tenth of what the machine had is left to it in any case
    """

    iteration_limit: int | None = None
    round_limit: int | None = None
    tuple_limit: int | None = None
    time_limit: float | None = None
    memory_limit: int | None = None


def checked_limits(
    iteration_limit: Any = None,
    round_limit: Any = None,
    tuple_limit: Any = None,
    time_limit: Any = None,
    memory_limit: Any = None,
) -> Limits:
    """The limits that a caller gave. Raises DomainError for one that is none."""
    return Limits(
        None if iteration_limit is None else integer(iteration_limit, "iteration_limit", 0),
        None if round_limit is None else integer(round_limit, "round_limit", 0),
        None if tuple_limit is None else integer(tuple_limit, "tuple_limit", 0),
        checked_time_limit(time_limit),
        None if memory_limit is None else size_in_bytes(memory_limit),
    )


def size_in_bytes(limit: Any) -> int:
    """Bytes of an integer or of a text such as "2 GB" or "512MiB"."""
    if is_integer(limit) and limit > 0:
        return int(limit)
    if isinstance(limit, str):
        parsed = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", limit.lower())
        if parsed is not None and parsed[2] in _UNITS and 0 < float(parsed[1]) < float("inf"):
            # Addresses have 64 bits: a larger limit limits nothing.
            return max(1, int(min(float(parsed[1]) * _UNITS[parsed[2]], 2.0**64)))
    raise DomainError(
        f"memory_limit is {limit!r}, expected bytes greater than zero", hint='for instance 2_000_000_000, or "2 GB"'
    )


def endless_tags(semiring: Semiring, tuples: int, rounds: int) -> str:
    """The message for tags that get better after `rounds` rounds of a recursion of at most `tuples` tuples, or "".

    The best derivation without a tuple that is derived from itself is no deeper than there are tuples, and rows wait
    for better tags for no more rounds than that. A tag that gets better later has a derivation that is better for what
    it repeats, and better again if it repeats that once more.
    """
    has_inverses = semiring.selective_plus and semiring.distributive and semiring.invertible_times
    may_grow = has_inverses and not semiring.absorptive and semiring.saturated is None
    if not may_grow or rounds <= MANY_ROUNDS + 2 * tuples:
        return ""
    return (
        f"tags still get better after {rounds:,} rounds: a tuple is derived from itself, with a better tag each time, "
        f"and has no best one in {semiring.name!r}"
    )


class PastBound(Exception):
    """A run within a run has more rows than it may have, see `Watch.apart`."""


class Watch(Deadline):
    """Looks at the limits of a run, and shows a person how far it is.

    executor  the run, while it goes over strata
    rows_read  of files, repeats included
    is_loading  whether facts are being loaded
    loaded    seconds that this took
    tuples    of all relations, but for what the instruction that runs now has added to `table`
    most      of them before PastBound is raised, and of rows that rules have derived, repeats included, see `apart`
    """

    def __init__(self, limits: Limits, shows: bool | None = None):
        super().__init__(limits.time_limit, "the run", "raise time_limit")
        self.limits = limits
        self.shows = shows
        self.began = time.monotonic()
        self.compiled = compile_time.seconds()
        self.executor: Executor | None = None
        self.stratum = self.round = self.tuples = self.rows_read = 0
        self.table: Table | None = None
        self.before = 0
        self.most: tuple[float, float] | None = None
        self.next_check = self.began + policy().look_seconds
        self.base: int | None = None
        if limits.memory_limit is not None:
            # What was freed before and still lies in the process would serve the run first, and be counted only when
            # the run has outgrown it: by then all at once.
            trim()
            self.base = policy().memory.resident_bytes() - kept_bytes()
        self.asks_at = 0.0
        self.is_loading, self.loaded = False, 0.0
        self.display = ExitStack()
        self.advance: Any = None
        self.shown = self.began, 0

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_) -> None:
        self.executor = self.table = None
        self.hide()

    # What a run tells

    def begin_instruction(self, table: Table) -> None:
        """An instruction begins to write to a table."""
        self.table, self.before = table, table.num_known

    def end_instruction(self) -> int:
        """It has ended; returns how many rows the table has got."""
        if self.table is None:
            return 0
        added = self.table.num_known - self.before
        self.tuples += added
        self.table = None
        return added

    def begin_round(self, stratum: int, number: int) -> None:
        self.stratum, self.round = stratum, number
        if number == self.limits.round_limit:
            raise self.failure(
                LimitError,
                f"the run passed round_limit = {number:,}",
                "raise round_limit, or stop there by iteration_limit",
            )
        self.remaining()

    @contextmanager
    def apart(self, most: float = math.inf, most_derived: float = math.inf) -> Iterator[None]:
        """Have `tuple_limit` not count what a run within this one makes, which raises PastBound for more rows than
        `most`, or if its rules derive more than `most_derived`, repeats included."""
        limits, tuples = self.limits, self.tuples
        self.limits, self.tuples, self.most = replace(limits, tuple_limit=None), 0, (most, most_derived)
        try:
            yield
        finally:
            self.limits, self.tuples, self.most = limits, tuples, None

    # What it looks at

    @property
    def num_tuples(self) -> int:
        return self.tuples + (0 if self.table is None else self.table.num_known - self.before)

    @property
    def num_derived(self) -> int:
        """Rows that the rules of the run have derived, repeats included."""
        return 0 if self.executor is None else sum(effort.candidates for effort in self.executor.efforts.values())

    @property
    def room(self) -> int | None:
        """Tuples that there may be more, None without a limit."""
        limit = self.limits.tuple_limit
        return None if limit is None else max(0, limit - self.num_tuples)

    @property
    def bytes_left(self) -> int | None:
        """Memory that compilers in separate processes may take; None without a limit."""
        limit = self.limits.memory_limit
        if limit is None:
            return None
        return max(1, limit - self.bytes_used)

    @property
    def bytes_used(self) -> int:
        """Memory that the run has added to the process, but for what freed arrays have left behind."""
        return policy().memory.resident_bytes() - kept_bytes() - (self.base or 0)

    def expect(self, size: int, what: str = "texts") -> None:
        """Raise OutOfMemory for `size` bytes, before they are made, if there is no room for them, and CompileTimeout if
        the time is over."""
        now = time.monotonic()
        if self.end is not None and now >= self.end:
            raise self.error()
        if size < policy().look_rows:
            return
        self.check_budget(now)
        limit, left, used = self.limits.memory_limit, policy().memory.available_bytes(), self.bytes_used
        if limit is not None and used + size > limit:
            raise self.failure(
                OutOfMemory,
                f"{what} of {shown_bytes(size)} would pass memory_limit = {shown_bytes(limit)}, of which "
                f"{shown_bytes(max(used, 0))} are taken",
                "raise memory_limit",
            )
        if left is not None and size > (1 - policy().reserved_part) * left:
            why = f"{what} of {shown_bytes(size)} are to be made, and {shown_bytes(left)} of memory are left"
            raise self.failure(OutOfMemory, why, "free memory")

    @contextmanager
    def loading(self) -> Iterator[None]:
        """While facts are loaded."""
        self.is_loading, began = True, time.monotonic()
        try:
            yield
        finally:
            self.is_loading = False
            self.loaded += time.monotonic() - began

    def read(self, rows: int = 0) -> None:
        """Look at the limits after `rows` more rows of files and iterables were read. Raises LimitError."""
        self.rows_read += rows
        limit = self.limits.tuple_limit
        if limit is not None and self.rows_read > limit:
            what = f"the run passed tuple_limit = {limit:,}: it read {self.rows_read:,} rows"
            raise self.failure(LimitError, what, "raise tuple_limit, or give fewer rows")
        self.remaining()

    def remaining(self) -> float | None:
        """Seconds left, None without a limit. Raises LimitError if a limit is passed."""
        now = time.monotonic()
        if now >= self.next_check:
            self.check_budget(now)
        limit = self.limits.tuple_limit
        if limit is not None and self.num_tuples > limit:
            raise self.failure(LimitError, f"the run passed tuple_limit = {limit:,}", "raise tuple_limit")
        if self.most is not None and (self.num_tuples > self.most[0] or self.num_derived > self.most[1]):
            raise PastBound
        if self.round > MANY_ROUNDS:
            self.check_tags()
        if self.end is None:
            return None
        if now >= self.end:
            raise self.error()
        return self.end - now

    def check_tags(self) -> None:
        """Raise LimitError for a recursion whose tags get better for ever."""
        executor = self.executor
        semiring = getattr(None if executor is None else executor.algebra, "semiring", None)
        if semiring is None or self.limits.iteration_limit is not None:
            return
        what = endless_tags(semiring, self.num_tuples, self.round)
        if what:
            raise self.failure(LimitError, what, ENDLESS_HINT)

    def check_budget(self, now: float) -> None:
        self.next_check = now + policy().look_seconds
        reusable = kept_bytes()
        resident = policy().memory.resident_bytes() - reusable
        if self.base is None:
            self.base = resident
        used = resident - self.base
        limit = self.limits.memory_limit
        if limit is not None and used + reusable > limit:
            # What freed arrays have left behind is memory of the process too.
            empty_cache()
            reusable, used = kept_bytes(), self.bytes_used
            if used > limit:
                raise self.failure(
                    OutOfMemory,
                    f"the run passed memory_limit = {shown_bytes(limit)}: it took {shown_bytes(used)}",
                    "raise memory_limit",
                )
        if used >= self.asks_at:
            self.ask(used, reusable)
        if now - self.began >= policy().quiet_seconds and now - self.shown[0] >= policy().quiet_seconds / 10:
            self.show(now)

    def ask(self, used: int, reusable: int) -> None:
        """Raise OutOfMemory if the machine has hardly any memory left, and the run is what took it."""
        left = policy().memory.available_bytes()
        if left is None:
            self.asks_at = math.inf
            return
        reserve = int((max(used, 0) + left + reusable) * policy().reserved_part)
        if left < reserve and reusable:
            left += empty_cache()
        if left < reserve and used > reserve:
            raise self.failure(
                OutOfMemory,
                f"the run took {shown_bytes(used)} of memory and {shown_bytes(left)} are left",
                "set memory_limit to let it go on, or free memory",
            )
        self.asks_at = used + max(left - reserve, reserve) / 8

    # Errors

    def error(self, doing: str = "") -> CompileTimeout:
        what, remedy = f"the run did not finish within {self.time_limit:g} s{doing}", self.hint
        seconds = compile_time.seconds() - self.compiled
        if seconds > LONG_PART * (self.time_limit or 0.0):
            what += f"\n  {seconds:.1f} s of these went into compiling kernels"
            remedy = f"run it again, as compiled kernels are reused, or {remedy}"
        return self.failure(CompileTimeout, what, remedy)

    def out_of_memory(self, wanted: str) -> OutOfMemory:
        """The error for memory that the system did not give; `wanted` is what it said."""
        said = wanted.strip().rstrip(".") or "the system gives no more"
        return self.failure(OutOfMemory, f"there is not enough memory for the run: {said}", "take a larger machine")

    def failure(self, kind: type, what: str, remedy: str) -> Any:
        """An error that names the rule that grew most lately, and how fast."""
        executor = self.executor
        if executor is None or not executor.ram.strata:
            return kind(what, hint=remedy)
        stratum = executor.ram.strata[self.stratum]
        added = self.end_instruction()
        effort = self.largest(executor, added)
        where = f"stratum {self.stratum}" + (f", round {self.round:,}" if stratum.is_recursive else "")
        rows = [f"{what}\n  in {where}, with {counted(self.tuples, 'tuple')} in all"]
        span: Span | None = None
        aggregate: AggregateRule | None = None
        if effort is not None:
            relation = effort.instruction.relation
            table = executor.tables[relation]
            name = "an intermediate relation" if relation.startswith("#") else f"`{relation}`"
            who = f"the rule of {name}, which has {counted(table.num_known, 'tuple')},"
            if isinstance(effort.instruction, AggregateRule):
                aggregate = effort.instruction
                who = f"`{aggregate.operator}` over {counted(executor.tables[aggregate.body].num_known, 'row')}"
            rows.append(f"  {who} {effort.growth_text()}")
            origin = getattr(effort.instruction, "origin", None)
            span = getattr(effort.instruction if origin is None else origin.clause, "span", NOWHERE)
            span = None if span is NOWHERE else span
        if stratum.is_recursive:
            advice = f"bound the recursion by a condition in its rule, derive fewer rows with @demand, or {remedy}"
        elif aggregate is not None:
            advice = f"let fewer rows into the aggregate, make its groups smaller, or {remedy}"
        elif effort is None and kind is CompileTimeout and self.loaded < LONG_PART * (time.monotonic() - self.began):
            # What passed went neither into rules nor into facts.
            advice = f"run it again, as the first run of a process loads modules and kernels, or {remedy}"
        elif effort is None:
            advice = f"give fewer facts, or {remedy}"
        else:
            advice = f"restrict the rule by a condition or a shared variable, or {remedy}"
        ram = executor.ram
        return kind("\n".join(rows), hint=advice, source=ram.source, text=ram.text, span=span)

    def largest(self, executor: Executor, added: int) -> Effort | None:
        """The effort of the rule that has been at it for long, or else added most in the last rounds."""
        relations = executor.ram.strata[self.stratum].relations
        efforts = [e for e in executor.efforts.values() if e.instruction.relation in relations]
        for effort in efforts:
            if effort.is_running and added:
                effort.grew(self.round, added)
        grown = [e for e in efforts if e.last]
        running = next((e for e in efforts if e.is_running), None)
        elapsed = time.monotonic() - self.began
        if running is not None and (not grown or time.perf_counter() - running.began > LONG_PART * elapsed):
            return running
        return max(grown, key=lambda e: e.recent_growth(self.round), default=None)

    # What it shows

    def show(self, now: float) -> None:
        if self.shows is None:
            self.shows = is_seen()
        if not self.shows or not (self.executor or self.is_loading):
            self.shown = now, self.num_tuples
            return
        if self.advance is None:
            self.advance = self.display.enter_context(progress("running", enabled=True))
        if self.executor is None:
            self.advance(0, "loading facts")
            self.shown = now, 0
            return
        ram = self.executor.ram
        stratum = ram.strata[self.stratum]
        names = [name for name in stratum.relations if not name.startswith("#")]
        tuples, before = self.num_tuples, self.shown
        rate = max(0, tuples - before[1]) / max(now - before[0], 1e-9)
        note = f"stratum {self.stratum + 1} of {len(ram.strata)}"
        if names:
            note += f" ({names[0]}{', ...' if len(names) > 1 else ''})"
        if stratum.is_recursive:
            note += f", round {self.round:,}"
        self.advance(0, f"{note}, {counted(tuples, 'tuple')}, {rate:,.0f} a second")
        self.shown = now, tuples

    def hide(self) -> None:
        """Show nothing any more."""
        self.display.close()
        self.advance = None


def watched(watch: Watch, work: Callable[[], Result]) -> Result:
    """What `work` returns. What a limit raises, or a Ctrl-C, comes without the frames it went through.

    Those hold the tables: who keeps the error, as a notebook does, would keep their memory.
    """
    failure: BaseException
    with watch:
        try:
            return work()
        except (LimitError, KeyboardInterrupt) as error:
            failure = error.with_traceback(None)
        except MemoryError as error:
            failure = watch.out_of_memory(str(error))
        except RecursionError:
            failure = too_deep()
    failure.__context__ = None
    raise failure


def too_deep(source: str | None = None) -> UnsupportedError:
    """The error for an expression whose parts lie deeper in each other than Python's stack is."""
    hint = "name parts of it by variables, `y == a + b, z == y + c`, or compute them in separate relations"
    return UnsupportedError("an expression of the program is nested too deep", source=source, hint=hint)


def counted(count: int, what: str) -> str:
    """A number of things in words, such as "1,000 rows"."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"
