"""Parsing formulas: conjunctions, disjunctions, negations, assigned aggregates."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.expressions import Expressions
from derivable.datalog.syntax.lexer import ITEM_KEYWORDS
from derivable.datalog.syntax.reader import MAX_DEPTH


class Formulas(Expressions):
    """The steps of the ladder above expressions."""

    def body(self, where: str) -> Any:
        start = self.token
        if start.kind == "end" or self.at(*ITEM_KEYWORDS):
            self.fail(f"expected a formula {where}, found {start.shown()}")
        parts = [self.formula()]
        while self.accept(","):
            parts.append(self.formula())
        return parts[0] if len(parts) == 1 else s.Conjunction(tuple(parts), span=self.since(start))

    def formula(self) -> Any:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail("this is nested too deep", "split the rule with an auxiliary relation")
        start = self.token
        left = self.disjunction()
        if self.accept("implies", "=>"):
            left = s.Implies(left, self.disjunction(), span=self.since(start))
            if self.at("implies", "=>"):
                self.fail("`implies` cannot be chained", "write `(a implies b) implies c` or `a implies (b implies c)`")
        self.depth -= 1
        return left

    def disjunction(self) -> Any:
        start = self.token
        parts = [self.conjunction()]
        while self.accept("or", "\\/"):
            parts.append(self.conjunction())
        return parts[0] if len(parts) == 1 else s.Disjunction(tuple(parts), span=self.since(start))

    def conjunction(self, assignments: bool = True) -> Any:
        start = self.token
        parts = [self.negation(assignments)]
        while self.accept("and", "/\\"):
            parts.append(self.negation(assignments))
        return parts[0] if len(parts) == 1 else s.Conjunction(tuple(parts), span=self.since(start))

    def negation(self, assignments: bool = True) -> Any:
        start = self.token
        if self.accept("not", "~"):
            return s.Not(self.negation(assignments), span=self.since(start))
        left = self.conditional()
        if assignments and self.at(":=", "="):
            sign = self.advance()
            right = self.conditional()
            if not isinstance(right, s.Aggregate):
                self.fail(
                    f"`{sign.text}` in a body assigns the result of an aggregate",
                    "write `==` to compare, or `n := count(x: p(x))` to aggregate",
                    sign.span,
                )
            outputs = left.items if isinstance(left, s.Tuple) else (left,)
            for output in outputs:
                if not isinstance(output, (s.Variable, s.Wildcard, s.Constant)):
                    self.fail("the result of an aggregate is assigned to variables", span=output.span)
            return replace(right, outputs=outputs, span=self.since(start))
        return left
