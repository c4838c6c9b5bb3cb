"""What all of desugaring shares: the core program so far, and the disjuncts of a formula."""

from __future__ import annotations

from typing import Any, NoReturn

from derivable.core.diagnostics import DerivableError, Span, UnsupportedError
from derivable.datalog.rules import nodes as r
from derivable.datalog.syntax import nodes as s
from derivable.datalog.types import Typed
from derivable.datalog.values.values import ValueType

MAX_CLAUSES = 4096


class Core:
    """The core program under construction."""

    def __init__(self, typed: Typed):
        self.typed = typed
        self.syntax = typed.syntax
        self.relations: dict[str, r.Relation] = dict(typed.relations)
        self.facts: list[r.Facts] = []
        self.rules: list[r.Rule] = []
        self.parameters: list[r.Parameter] = []
        # By the identity of its expression, which several clauses may share.
        self.parameter_numbers: dict[int, int] = {}
        self.counts: dict[str, int] = {}

    def error(self, kind: type[DerivableError], message: str, span: Span, hint: str | None = None) -> NoReturn:
        self.syntax.error(kind, message, span, hint)

    def fresh(self, stem: str) -> str:
        self.counts[stem] = self.counts.get(stem, 0) + 1
        return f"{stem}{self.counts[stem]}"

    def new_relation(self, stem: str, types: tuple[ValueType, ...], name: str | None = None) -> str:
        name = name or f"#{self.fresh(stem + '_')}"
        self.relations[name] = r.Relation(name, types, is_hidden=True)
        return name

    def normal_form(self, node: Any, positive: bool) -> list[list[tuple[Any, bool]]]:
        """Disjuncts of (leaf, positive) pairs."""
        match node:
            case s.Not(operand=a):
                return self.normal_form(a, not positive)
            case s.Implies(condition=a, conclusion=b):
                return self.normal_form(s.Disjunction((s.Not(a), b), span=node.span), positive)
            case s.Conjunction(operands=parts) | s.Tuple(items=parts) | s.Disjunction(operands=parts):
                if isinstance(node, s.Disjunction) == positive:
                    return [d for part in parts for d in self.normal_form(part, positive)]
                product: list[list[tuple[Any, bool]]] = [[]]
                for part in parts:
                    options = self.normal_form(part, positive)
                    if len(product) * len(options) > MAX_CLAUSES:
                        self.error(
                            UnsupportedError,
                            f"this body has more than {MAX_CLAUSES} disjuncts",
                            node.span,
                            "name a part of it with an auxiliary relation",
                        )
                    product = [a + b for a in product for b in options]
                return product
        return [[(node, positive)]]
