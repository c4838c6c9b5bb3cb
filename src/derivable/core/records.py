"""Dataclasses whose methods are made when they are called first.

Python writes the methods of a dataclass as text and compiles them when the class is made, which takes half a
millisecond. A process that answers one small question has two hundred such classes, and calls few of their methods.
Here a method is compiled at its first call; all else is that of `dataclasses`, whose functions know these classes too
(docs/decisions/102).
"""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import MISSING, Field, FrozenInstanceError
from functools import partial
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

from derivable.core.forks import renew_in_children

# What `dataclasses` keeps of each frozen class.
_frozen: dict[type, Any] = {}
_lock = threading.Lock()

renew_in_children(globals(), _lock=threading.Lock)

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(cls: type | None = None, /, **options: Any) -> Any:
        """Decorator: the same as `dataclasses.dataclass`, with methods that are made when they are called first.

        options  frozen, eq, repr and kw_only; a class with other ones has its methods at once
        """
        return partial(dataclass, **options) if cls is None else _made(cls, **options)


def _made(
    cls: Any, frozen: bool = False, eq: bool = True, repr: bool = True, kw_only: bool = False, **others: Any
) -> Any:
    if others:
        return dataclasses.dataclass(frozen=frozen, eq=eq, repr=repr, kw_only=kw_only, **others)(cls)
    own = dict(vars(cls))
    if not cls.__doc__:
        # Else its signature is looked for at once.
        cls.__doc__ = cls.__name__
    with _thawed(cls):
        dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(cls)
        if frozen:
            _frozen[cls] = cls.__dataclass_params__
            _frozen[cls].frozen = True
    methods = {"__init__": _later(cls, "__init__", partial(_init, is_frozen=frozen)), "__signature__": _Signature()}
    if repr:
        methods["__repr__"] = _repr(cls)
    if frozen:
        methods["__setattr__"], methods["__delattr__"] = _refusing(cls, "assign to"), _refusing(cls, "delete")
    if eq:
        methods["__eq__"] = _later(cls, "__eq__", _eq)
        # A class with an equality of its own has None there.
        if own.get("__hash__") is None:
            methods["__hash__"] = _later(cls, "__hash__", _hash) if frozen else None
            own.pop("__hash__", None)
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


@contextmanager
def _thawed(cls: type) -> Iterator[None]:
    """Inside, the frozen classes that a class derives from are not frozen for `dataclasses`, which would write methods
    for those that are.
    """
    bases = [_frozen[base] for base in cls.__mro__ if base in _frozen]
    with _lock:
        for base in bases:
            base.frozen = False
        try:
            yield
        finally:
            for base in bases:
                base.frozen = True


class _Signature:
    """The attribute of a class that `inspect` looks at first: has the method to look at next made."""

    def __get__(self, instance: Any, cls: type) -> None:
        make = getattr(cls.__init__, "make", None)
        if make is not None:
            make()


def _later(cls: type, name: str, write: Callable[[type, dict[str, Any]], str]) -> Any:
    """A method that is written and compiled when it is called first.

    write  the text of its function `method`, for a class and the global names that the function has
    """

    def make() -> Any:
        names: dict[str, Any] = {"__name__": cls.__module__}
        exec(write(cls, names), names)
        made = names.pop("method")
        made.__name__, made.__qualname__ = name, f"{cls.__qualname__}.{name}"
        if name == "__init__":
            made.__annotations__ = {one.name: one.type for one in dataclasses.fields(cls) if one.init}
        setattr(cls, name, made)
        return made

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        return make()(self, *args, **kwargs)

    vars(method)["make"] = make
    return method


def _init(cls: type, names: dict[str, Any], is_frozen: bool) -> str:
    given: dict[bool, list[str]] = {False: [], True: []}
    lines = []
    for one in dataclasses.fields(cls):
        value, default = one.name, ""
        if one.default is not MISSING:
            names[f"_default_{one.name}"] = one.default
            default = f"=_default_{one.name}"
        elif one.default_factory is not MISSING:
            names[f"_make_{one.name}"], names["_absent"] = one.default_factory, MISSING
            value, default = f"_make_{one.name}()", "=_absent"
            if one.init:
                value = f"{value} if {one.name} is _absent else {one.name}"
        if one.init:
            given[bool(one.kw_only)].append(one.name + default)
        elif one.default_factory is MISSING:
            continue
        lines.append(f" _set(self, {one.name!r}, {value})" if is_frozen else f" self.{one.name} = {value}")
    names["_set"] = object.__setattr__
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    parameters = ["self", *given[False], *(["*", *given[True]] if given[True] else [])]
    return "\n".join([f"def method({', '.join(parameters)}):", *(lines or [" pass"])])


def _eq(cls: type, names: dict[str, Any]) -> str:
    mine, others = (_tuple(of, [f for f in dataclasses.fields(cls) if f.compare]) for of in ("self", "other"))
    return (
        f"def method(self, other):\n return {mine} == {others} if other.__class__ is self.__class__ else NotImplemented"
    )


def _hash(cls: type, names: dict[str, Any]) -> str:
    hashed = [f for f in dataclasses.fields(cls) if (f.compare if f.hash is None else f.hash)]
    return f"def method(self):\n return hash({_tuple('self', hashed)})"


def _tuple(of: str, some: list[Field]) -> str:
    return f"({''.join(f'{of}.{f.name}, ' for f in some)})"


def _repr(cls: type) -> Any:
    @recursive_repr()
    def method(self: Any) -> str:
        shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(cls) if f.repr)
        return f"{type(self).__qualname__}({shown})"

    return method


def _refusing(cls: type, what: str) -> Any:
    """The method that refuses to assign to or delete a field."""
    name = "__setattr__" if what == "assign to" else "__delattr__"

    def method(self: Any, field: str, *value: Any) -> None:
        if type(self) is cls or field in cls.__dataclass_fields__:
            raise FrozenInstanceError(f"cannot {what} field {field!r}")
        getattr(super(cls, self), name)(field, *value)

    return method
