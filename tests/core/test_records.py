"""Dataclasses with late methods are those of `dataclasses`, and compile what is called alone."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field
from functools import partial
from threading import Barrier, Thread
from typing import Any, ClassVar

import pytest

from derivable.core import records


def made_by(decorator: Any) -> dict[str, type]:
    """Classes of all forms that a decorator makes."""

    @decorator(frozen=True)
    class Point:
        """A point."""

        kind: ClassVar[str] = "point"
        x: int
        y: int = 3
        notes: list[str] = field(default_factory=list, compare=False)
        hidden: int = field(default=0, repr=False)

    @decorator(frozen=True)
    class Named(Point):
        name: str = "p"
        size: int = field(default=7, init=False)
        own: list[int] = field(default_factory=list, init=False, hash=False)

        def __post_init__(self) -> None:
            object.__setattr__(self, "size", len(self.name))

    @decorator
    class Changing:
        a: int
        b: Any = None

        def total(self) -> int:
            return self.a + self.b

    @decorator(eq=False)
    class Identity:
        a: int

    @decorator(frozen=True, kw_only=True)
    class Keyword:
        a: int
        b: int = 2

        def __hash__(self) -> int:
            return 5

        def __repr__(self) -> str:
            return f"<{self.a}>"

    class Plain(Point):
        pass

    return {kind.__name__: kind for kind in (Point, Named, Changing, Identity, Keyword, Plain)}


OURS, THEIRS = made_by(records.dataclass), made_by(dataclass)
# Class, arguments, keyword arguments.
CALLS: list[tuple[str, tuple, dict]] = [
    *[("Point", args, {}) for args in ((1,), (1, 2), (1, 2, ["n"]), (2, 3, [], 9))],
    *[("Named", args, {}) for args in ((1,), (1, 2, [], 0, "name"))],
    *[("Changing", args, {}) for args in ((1,), (1, 2), ((), ()))],
    *[("Identity", (1,), {}), ("Keyword", (), {"a": 1}), ("Keyword", (), {"a": 1, "b": 3}), ("Plain", (1, 5), {})],
    *[("Point", (), {}), ("Point", (1, 2, [], 3, 4), {}), ("Keyword", (1,), {}), ("Changing", (1,), {"c": 2})],
]


def outcome(call: Any) -> Any:
    """What a call gives, or its error."""
    try:
        return call()
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


@pytest.mark.parametrize(("name", "args", "kwargs"), CALLS)
def test_they_do_what_those_of_python_do(name: str, args: tuple, kwargs: dict) -> None:
    ours, theirs = (outcome(lambda kind=kind: kind[name](*args, **kwargs)) for kind in (OURS, THEIRS))
    if isinstance(theirs, tuple):
        assert ours == theirs
        return
    assert vars(ours) == vars(theirs)
    assert repr(ours) == repr(theirs)
    again = OURS[name](*args, **kwargs)
    assert (ours == again) == (theirs == THEIRS[name](*args, **kwargs))
    assert ours != theirs
    if name == "Identity":
        assert hash(ours) != hash(again) or ours is again
    else:
        assert outcome(lambda: hash(ours)) == outcome(lambda: hash(theirs))
    assert vars(dataclasses.replace(ours, **kwargs)) == vars(dataclasses.replace(theirs, **kwargs))
    for attribute in ("x", "a", "other"):
        for change in (partial(setattr, ours, attribute, 1), partial(delattr, ours, attribute)):
            other = partial(change.func, theirs, *change.args[1:])
            assert outcome(change) == outcome(other)


@pytest.mark.parametrize("name", sorted(OURS))
def test_their_fields_and_parameters_are_those_of_python(name: str) -> None:
    ours, theirs = made_by(records.dataclass)[name], THEIRS[name]
    assert [f.name for f in dataclasses.fields(ours)] == [f.name for f in dataclasses.fields(theirs)]
    assert ours.__match_args__ == theirs.__match_args__
    mine, its = (inspect.signature(kind).parameters for kind in (ours, theirs))
    assert [(p.name, p.kind, p.annotation) for p in mine.values()] == [
        (p.name, p.kind, p.annotation) for p in its.values()
    ]


@records.dataclass(frozen=True)
class Pair:
    """Two values."""

    a: Any
    b: Any = None


def test_what_was_not_made_by_its_constructor_has_all_methods() -> None:
    pair = Pair.__new__(Pair)
    vars(pair).update(a=1, b=2)
    assert pair == Pair(1, 2)
    assert {pickle.loads(pickle.dumps(pair)), copy.copy(pair), Pair(1, 2)} == {pair}
    match pair:
        case Pair(a, b):
            assert (a, b) == (1, 2)


def test_a_frozen_class_of_python_may_derive_from_one_of_ours() -> None:
    @dataclass(frozen=True)
    class Triple(Pair):
        c: int = 0

    assert dataclasses.astuple(Triple(1, 2, 3)) == (1, 2, 3)
    with pytest.raises(FrozenInstanceError):
        Triple(1).c = 4  # type: ignore[misc]


def test_a_method_is_compiled_when_it_is_called() -> None:
    kind: Any = made_by(records.dataclass)["Point"]
    assert [hasattr(vars(kind)[name], "make") for name in ("__init__", "__eq__", "__hash__")] == [True] * 3
    assert kind(1) in {kind(1)}
    assert [hasattr(vars(kind)[name], "make") for name in ("__init__", "__eq__", "__hash__")] == [False] * 3


def test_threads_that_call_a_method_first_at_the_same_time_have_the_same() -> None:
    for _ in range(20):
        kind: Any = made_by(records.dataclass)["Point"]
        begin, made = Barrier(4), []

        def make(kind: Any = kind, begin: Barrier = begin, made: list = made) -> None:
            begin.wait()
            made.append(kind(1, 2))

        threads = [Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert set(made) == {kind(1, 2)}
