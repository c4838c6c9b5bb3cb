"""Functions, predicates and attributes that Python gives to the programs of a context."""

from __future__ import annotations

import inspect
import sys
import typing
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from derivable.compat.scallopy.value_types import TAGS, is_concrete, kind_of
from derivable.core.diagnostics import DomainError
from derivable.datalog.foreign.function import ForeignFunction as FunctionRecord
from derivable.datalog.foreign.predicate import ForeignPredicate as PredicateRecord
from derivable.datalog.foreign.signature import Kind, Signature
from derivable.datalog.foreign.standard import FUNCTIONS, PREDICATES

# Programs of one process call a function by a name that no other one has.
_NUMBERS = count()
_EMPTY = inspect.Parameter.empty


class Facts:
    """What a predicate is annotated to return: `Facts[float, tuple[int, str]]`, the tags and the tuples of its rows, or
    `Facts[int, str]`, the columns of rows without tags."""

    def __init__(self, tag_type: Any, tuple_type: Any):
        self.tag_type, self.tuple_type = tag_type, tuple_type

    def __class_getitem__(cls, given: Any) -> Facts:
        if not isinstance(given, tuple) or len(given) == 1:
            return cls(None, given)
        if len(given) == 2 and (_is_tuple(given[1]) or _is_none(given[0]) or _is_tag(given[0])):
            return cls(*given)
        return cls(None, given)

    @property
    def types(self) -> tuple[Any, ...]:
        """The type of each column."""
        given = () if self.tuple_type is tuple else self.tuple_type
        if typing.get_origin(given) is tuple:
            return tuple(one for one in typing.get_args(given) if one != ())
        return given if isinstance(given, tuple) else (given,)


class BatchedFacts(Facts):
    """What a batched predicate is annotated to return: as `Facts`, for each tuple of inputs a list of rows."""


class BatchedTuples:
    """What a batched predicate is annotated to take: `BatchedTuples[float, str]`, a list of tuples of inputs."""

    def __init__(self, types: tuple[Any, ...]):
        self.types = types

    def __class_getitem__(cls, given: Any) -> BatchedTuples:
        return cls(given if isinstance(given, tuple) else (given,))


class ForeignFunction:
    """A function of Python that programs call as `$name(...)`; it can be called as before.

    func              the function
    name              what programs call it
    arg_types         annotations of the arguments that every call has
    opt_arg_types     of those that a call may leave out
    var_arg_type      of any number of further ones; None if there are none
    ret_type          of what it returns: a type, or a generic that arguments decide
    suppress_warning  whether an exception, which drops the row, is no warning
    """

    def __init__(
        self,
        func: Callable[..., Any],
        name: str,
        arg_types: Sequence[Any],
        opt_arg_types: Sequence[Any],
        var_arg_type: Any,
        ret_type: Any,
        suppress_warning: bool = False,
    ):
        self.func, self.name, self.suppress_warning = func, name, suppress_warning
        self.arg_types, self.opt_arg_types = list(arg_types), list(opt_arg_types)
        self.var_arg_type, self.ret_type = var_arg_type, ret_type
        generics: dict[str, str] = {}

        def kind(given: Any, what: str) -> Kind:
            return kind_of(given, f"{what} of ${name}", True, generics)

        parameters = [
            *(kind(one, f"argument {i + 1}") for i, one in enumerate(self.arg_types)),
            *(kind(one, f"optional argument {i + 1}") for i, one in enumerate(self.opt_arg_types)),
        ]
        rest = None if var_arg_type is None else kind(var_arg_type, "the variable arguments")
        known = dict(generics)
        result = kind(ret_type, "the result")
        if not is_concrete(result, known):
            raise DomainError(
                f"the result of ${name} is {ret_type!r}, which is no type that its arguments decide",
                hint="annotate a type of Scallop, as scallopy.i32, or a generic type of an argument",
            )
        if not parameters and rest is None:
            raise DomainError(f"the function ${name} has no arguments", hint="write its value in the program")
        signature = Signature(tuple(parameters), (result,), tuple(known.items()), len(self.opt_arg_types), rest)
        # The types of Python that a result has; None where that is not looked at.
        family = getattr(result, "family", "")
        self._accepts = {"float": (float, int), "text": (str,), "bool": (bool,), "char": (str,)}.get(family)
        if getattr(result, "is_integer", False):
            self._accepts = (int,)
        self.registered_name = f"{name}__{next(_NUMBERS)}"
        self.record = FunctionRecord(self.registered_name, signature, self._value)

    def __call__(self, *arguments: Any) -> Any:
        return self.func(*arguments)

    def __repr__(self) -> str:
        return f"extern fn ${self.name}{self.record.signature}"

    def __reduce__(self) -> str:
        return _place(self, self.func)

    def _value(self, *arguments: Any) -> Any:
        """What the function returns, None where it fails or returns something of another kind."""
        try:
            found = self.func(*arguments)
            if getattr(found, "ndim", None) == 0 and self._accepts is not None:
                found = found.item()
            if found is not None and self._accepts is not None and not isinstance(found, self._accepts):
                raise TypeError(f"it returned {found!r}, and is annotated with {self.ret_type!r}")
        except Exception as error:
            _warn(self, f"${self.name}", arguments, error)
            return None
        return found

    def register(self) -> None:
        """Make the function known to this process."""
        FUNCTIONS.add(self.registered_name, self.record)


class ForeignPredicate:
    """A generator of Python that programs use as `name(inputs..., outputs...)`; it can be called as before.

    func              the generator
    name              what programs call it
    type_params       generic types, which programs give as in `name<i32>(...)`
    input_arg_types   of the arguments, which a rule binds elsewhere
    output_arg_types  of the columns of its rows
    tag_type          of the tags of its rows; None if they are certain
    suppress_warning  whether an exception, which ends the rows, is no warning
    batched           whether `func` is a function of a list of tuples of inputs, which returns a list of the rows of
                      each
    batch_size        how long the list is at most; None for any length
    """

    def __init__(
        self,
        func: Callable[..., Iterable[Any]],
        name: str,
        type_params: Sequence[Any],
        input_arg_types: Sequence[Any],
        output_arg_types: Sequence[Any],
        tag_type: Any,
        suppress_warning: bool = False,
        batched: bool = False,
        batch_size: int | None = None,
    ):
        self.func, self.name, self.suppress_warning, self.tag_type = func, name, suppress_warning, tag_type
        self.batched, self.batch_size = batched, batch_size
        self.type_params, self.input_arg_types = list(type_params), list(input_arg_types)
        self.output_arg_types = list(output_arg_types)
        generics: dict[str, str] = {}
        for one in self.type_params:
            kind_of(one, f"a type parameter of {name}", False, generics)
        inputs = [kind_of(one, f"an input of {name}", False, generics) for one in self.input_arg_types]
        outputs = [kind_of(one, f"an output of {name}", False, generics) for one in self.output_arg_types]
        signature = Signature(tuple(inputs), tuple(outputs), tuple(generics.items()))
        self.registered_name = f"{name.partition('<')[0]}__{next(_NUMBERS)}"
        self.has_tags = not _is_none(tag_type)
        self.has_tensor_tags = getattr(tag_type, "__name__", tag_type) == "Tensor"
        # The tags of rows that are tensors, by the row, since somebody took them.
        self.tensors: dict[tuple, Any] = {}
        call, at_once = (self._lists, batch_size or 0) if batched else (self._rows, None)
        self.record = PredicateRecord(self.registered_name, signature, call, self.has_tags, at_once=at_once)

    @property
    def arity(self) -> int:
        """The number of its arguments, inputs and outputs."""
        return len(self.input_arg_types) + len(self.output_arg_types)

    @property
    def pattern(self) -> str:
        """`b` for each input, `f` for each output."""
        return "b" * len(self.input_arg_types) + "f" * len(self.output_arg_types)

    def __call__(self, *arguments: Any) -> Any:
        return self.func(*arguments)

    def __repr__(self) -> str:
        return f"extern pred {self.name}{self.record.signature}"

    def __reduce__(self) -> str:
        return _place(self, self.func)

    def _rows(self, *arguments: Any) -> Iterator[Any]:
        try:
            for row in self.func(*arguments):
                yield self._row(arguments, row)
        except Exception as error:
            _warn(self, self.name, arguments, error)

    def _lists(self, inputs: list[tuple]) -> list[list[Any]]:
        """The rows of each tuple of inputs."""
        try:
            found = [[self._row(one, row) for row in rows] for one, rows in zip(inputs, self.func(inputs), strict=True)]
        except Exception as error:
            _warn(self, self.name, (inputs,), error)
            return [[] for _ in inputs]
        return found

    def _row(self, arguments: tuple, row: Any) -> Any:
        if not self.has_tags:
            return row if isinstance(row, tuple) else (row,)
        tag, values = row
        values = values if isinstance(values, tuple) else (values,)
        if hasattr(tag, "detach"):
            self.tensors[_key((*arguments, *values))] = tag
            tag = float(tag.detach())
        return tag, values

    def tensor_of(self, row: Sequence[Any]) -> Any:
        """The tag of a row of inputs and outputs that is a tensor; None of others."""
        return self.tensors.get(_key(row))

    def register(self) -> None:
        """Make the predicate known to this process."""
        PREDICATES.add(self.registered_name, self.record)


class ForeignAttributeProcessor:
    """A function of Python that is called with each item on which its attribute stands, `@name(arguments)`.

    It gets the item, as a node of `scallopy.syntax`, and the attribute's arguments, and returns None, to keep the item;
    a `ForeignFunction` or a `ForeignPredicate`, which takes the item's place; an action of `scallopy.attribute`; or a
    list of such.
    """

    def __init__(self, name: str, processor: Callable[..., Any], suppress_warning: bool = False):
        self.name, self.processor, self.suppress_warning = name, processor, suppress_warning

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self.processor(*arguments, **keywords)

    def __reduce__(self) -> str:
        return _place(self, self.processor)


def foreign_function(
    func: Any = None,
    name: str | None = None,
    arg_types: Sequence[Any] | None = None,
    opt_arg_types: Sequence[Any] | None = None,
    var_arg_type: Any = None,
    ret_type: Any = None,
    suppress_warning: bool = False,
) -> Any:
    """Make a function of Python one of Scallop, `$name(...)`; a decorator, with arguments or without.

    Types come from annotations where they are not given: `int` and `float` are any integer and any float, so that what
    a function returns is annotated with a type, such as `i32`. Optional arguments have the default None. Arguments are
    as for `ForeignFunction`. Raises DomainError for annotations that are missing or no types.
    """

    def decorate(func: Callable[..., Any]) -> ForeignFunction:
        title = name or func.__name__
        given, optional, rest = _arguments(func, title) if arg_types is None else (arg_types, [], None)
        optional = optional if opt_arg_types is None else opt_arg_types
        rest = rest if var_arg_type is None else var_arg_type
        result = _hints(func).get("return", _EMPTY) if ret_type is None else ret_type
        if result is _EMPTY:
            raise DomainError(f"the function ${title} does not say what it returns", hint="annotate it, as in `-> str`")
        return ForeignFunction(func, title, given, optional, rest, result, suppress_warning)

    return decorate if func is None else decorate(func)


def foreign_predicate(
    func: Any = None,
    name: str | None = None,
    type_params: Sequence[Any] | None = None,
    input_arg_types: Sequence[Any] | None = None,
    output_arg_types: Sequence[Any] | None = None,
    tag_type: Any = _EMPTY,
    suppress_warning: bool = False,
    batched: bool = False,
    batch_size: int | None = None,
) -> Any:
    """Make a generator of Python a predicate of Scallop, `name(inputs..., outputs...)`; a decorator, with arguments or
    without.

    Types come from annotations where they are not given; it is annotated to return `Facts[tag, tuple]`, and yields
    tuples if the tag is None, else pairs (tag, tuple). A batched one has one argument, `BatchedTuples[int, str]`, a
    list of tuples of inputs, and returns `BatchedFacts[tag, tuple]`, a list of lists. Arguments are as for
    `ForeignPredicate`.

    Raises DomainError for annotations that are missing or no types, and for arguments that may be left out.
    """

    def decorate(func: Callable[..., Any]) -> ForeignPredicate:
        title = name or func.__name__
        inputs = input_arg_types
        if inputs is None:
            inputs, optional, rest = _arguments(func, title)
            if optional or rest is not None:
                raise DomainError(
                    f"the predicate {title} has optional or variable arguments",
                    hint="its arguments are inputs, then outputs: give each a predicate of its own",
                )
            if batched:
                if len(inputs) != 1 or not isinstance(inputs[0], BatchedTuples):
                    raise DomainError(
                        f"the batched predicate {title} does not take a list of tuples of inputs",
                        hint="give it one argument, `inputs: BatchedTuples[int, str]`",
                    )
                inputs = inputs[0].types
        found = _hints(func).get("return")
        if output_arg_types is None and not isinstance(found, Facts):
            raise DomainError(
                f"the predicate {title} does not say what it yields", hint="annotate it `-> Facts[None, tuple[int]]`"
            )
        outputs = found.types if output_arg_types is None and isinstance(found, Facts) else output_arg_types
        tags = tag_type
        if tags is _EMPTY:
            tags = found.tag_type if isinstance(found, Facts) else None
        rest = suppress_warning, batched, batch_size
        return ForeignPredicate(func, title, type_params or [], inputs, outputs or [], tags, *rest)

    return decorate if func is None else decorate(func)


def foreign_attribute(func: Any = None, name: str | None = None, suppress_warning: bool = False) -> Any:
    """Make a function of Python the processor of an attribute, `@name(...)`; a decorator, with arguments or without."""

    def decorate(func: Callable[..., Any]) -> ForeignAttributeProcessor:
        return ForeignAttributeProcessor(name or func.__name__, func, suppress_warning)

    return decorate if func is None else decorate(func)


def _hints(func: Callable[..., Any]) -> dict[str, Any]:
    """The annotations of a function, those that are texts as what they name."""
    found = dict(getattr(func, "__annotations__", {}))
    names = {**getattr(func, "__globals__", {}), **inspect.getclosurevars(func).nonlocals}
    for key, value in found.items():
        if isinstance(value, str):
            try:
                found[key] = eval(value, names)
            except Exception:
                # A name of a type, as "usize".
                continue
    return found


def _arguments(func: Callable[..., Any], title: str) -> tuple[list[Any], list[Any], Any]:
    """(annotations of the arguments, of the optional ones, of the variable ones or None)"""
    given: list[Any] = []
    optional: list[Any] = []
    rest = None
    hints = _hints(func)
    for parameter in inspect.signature(func).parameters.values():
        annotation = hints.get(parameter.name, _EMPTY)
        if annotation is _EMPTY:
            raise DomainError(f"argument `{parameter.name}` of {title} has no annotation", hint="as in `x: int`")
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = annotation
        elif parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD):
            raise DomainError(f"argument `{parameter.name}` of {title} is by keyword, which no program gives")
        elif parameter.default is _EMPTY:
            given.append(annotation)
        elif parameter.default is not None:
            raise DomainError(
                f"argument `{parameter.name}` of {title} has the default {parameter.default!r}",
                hint="optional arguments have the default None",
            )
        else:
            optional.append(annotation)
    return given, optional, rest


def _key(row: Sequence[Any]) -> tuple:
    """What tells rows apart: values, and tensors by their identity."""
    return tuple(id(value) if hasattr(value, "detach") else value for value in row)


def _place(foreign: Any, func: Callable[..., Any]) -> str:
    """Where pickle finds what is decorated: under the name of the function, in its module."""
    foreign.__module__ = func.__module__
    return func.__qualname__


def _is_tuple(given: Any) -> bool:
    return isinstance(given, tuple) or given is tuple or typing.get_origin(given) is tuple


def _is_tag(given: Any) -> bool:
    """Whether a type is one of tags, which no column is."""
    return given is float or getattr(given, "__name__", "") in (*TAGS, "Tensor")


def _is_none(tag_type: Any) -> bool:
    return tag_type is None or tag_type is type(None) or getattr(tag_type, "__name__", "") == "none"


def _warn(foreign: Any, name: str, arguments: tuple, error: Exception) -> None:
    if not foreign.suppress_warning:
        warnings.warn(f"{name} failed for {arguments!r}: {type(error).__name__}: {error}", stacklevel=2)


def _similarity(x: Any, y: Any) -> Any:
    # As Scallop writes it, with the precedence of Python.
    return sys.modules["torch"].cosine_similarity(x, y, dim=0) + 1.0 / 2.0


@foreign_predicate(name="soft_eq<Tensor>", input_arg_types=["Tensor"] * 2, output_arg_types=[], tag_type="Tensor")
def soft_equal(x: Any, y: Any) -> Iterator[Any]:
    """How alike two vectors are."""
    yield _similarity(x, y), ()


@foreign_predicate(name="soft_neq<Tensor>", input_arg_types=["Tensor"] * 2, output_arg_types=[], tag_type="Tensor")
def soft_unequal(x: Any, y: Any) -> Iterator[Any]:
    """How unlike two vectors are."""
    yield 1.0 - _similarity(x, y), ()


# What `Facts` was called before.
Generator = Facts
# What contexts have from the start, beside the predicates of the language.
STANDARD: tuple[ForeignPredicate, ...] = (soft_equal, soft_unequal)
ff = foreign_function
fp = foreign_predicate
