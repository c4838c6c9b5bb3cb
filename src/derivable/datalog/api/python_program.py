"""Programs whose rules are Python functions."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import update_wrapper
from types import FunctionType
from typing import Any, overload

from derivable.core.diagnostics import DomainError
from derivable.datalog.api.program import Program
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.imports import with_imports
from derivable.datalog.syntax.parse import parse
from derivable.datalog.syntax.python_rules import rules_of


class PythonRule:
    """A Python function as rules of a program: what `derivable.rule` makes. A call is that of the function itself."""

    def __init__(self, function: Callable[..., Any], probability: float | None = None):
        if not isinstance(function, FunctionType):
            raise DomainError(f"a rule is a function, not a {type(function).__name__}", hint="def path(edge): ...")
        if probability is not None and not 0 <= probability <= 1:
            raise DomainError(f"the probability of the rule {function.__name__!r} is {probability!r}, not in [0, 1]")
        self.function, self.probability = function, probability
        self.rules = rules_of(function, probability)
        update_wrapper(self, function)

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        return self.function(*arguments, **named)

    def __reduce__(self) -> str:
        return self.function.__qualname__


@overload
def rule(function: Callable[..., Any]) -> PythonRule: ...


@overload
def rule(*, probability: float | None = None) -> Callable[[Callable[..., Any]], PythonRule]: ...


def rule(function: Any = None, *, probability: float | None = None) -> Any:
    """Make a Python function the rules of a relation; a decorator. `Program.from_rules` makes a program of them.

        @dv.rule
        def path(edge, path):
            for a, b in edge:
                yield a, b
            for a, b in path:
                for c, d in edge:
                    if b == c:
                        yield a, d

        dv.Program.from_rules(path).run({"edge": [(0, 1), (1, 2)]})["path"]

    probability  of each ground instance of its rules; None: they are certain

    The function's name is the relation that it derives, its parameters are the relations that it reads, as sets of
    tuples, or of values if they have one column. It may go through relations and `range` with `for`, test with `if`
    (`continue` too), `in`, `not in`, `any` and `all`, name values, compute with numbers and texts, count and fold with
    `len`, `sum`, `min` and `max` of a comprehension, call functions that `dv.datalog.function` knows, and `yield`
    tuples or return comprehensions. It means what Python means by it; the order of tuples has no meaning.

    Raises ParseError, with the line, for Python that is no rule.
    """
    if function is None:
        return lambda function: PythonRule(function, probability)
    return PythonRule(function, probability)


class PythonProgram(Program):
    """A program of Python functions, and of text; see `Program.from_rules`."""

    def __init__(
        self, rules: Sequence[PythonRule], text: str = "", *, roots: Sequence[str | os.PathLike] | None = None
    ):
        for one in rules:
            if not isinstance(one, PythonRule):
                raise DomainError(f"{one!r} is no rule", hint="write `@dv.rule` above its function")
        self._functions = tuple(rules)
        super().__init__(text, roots=roots)

    def _with_text(self, text: str) -> PythonProgram:
        return PythonProgram(self._functions, text, roots=self.roots.folders)

    def _parsed(self) -> s.Syntax:
        syntax = with_imports(parse(self.text, self.source), None, self.roots)
        rules = [rule for function in self._functions for rule in function.rules]
        return s.Syntax((*syntax.items, *rules), syntax.text, syntax.source)
