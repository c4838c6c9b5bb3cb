"""The types of formulas: atoms, aggregates, conditions."""

from __future__ import annotations

from typing import Any

from derivable.core.diagnostics import BindingError
from derivable.core.registry import suggestion
from derivable.datalog.aggregates import AGGREGATES
from derivable.datalog.foreign.standard import PREDICATES
from derivable.datalog.scalars.nodes import children
from derivable.datalog.syntax import nodes as s
from derivable.datalog.types.expressions import Expressions
from derivable.datalog.types.mixed import ARITHMETIC
from derivable.datalog.types.unification import Open, Type, resolve
from derivable.datalog.values.values import BOOL


class Formulas(Expressions):
    """Types what stands in bodies and heads."""

    def formula(self, node: Any) -> None:
        match node:
            case s.Atom():
                self.atom(node)
            case s.Not() | s.Conjunction() | s.Disjunction() | s.Implies() | s.Tuple():
                for child in children(node):
                    self.formula(child)
            case s.Aggregate():
                result = self.aggregate(node)
                outputs = node.outputs
                if outputs is None:
                    if node.operator not in ("exists", "forall"):
                        self.mismatch(
                            f"the result of `{node.operator}` is not used",
                            node.span,
                            f"assign it: `n := {node.operator}(...)`",
                        )
                    return
                if len(outputs) != len(result):
                    hint = None
                    if node.operator in ("min", "max") and len(outputs) == len(node.arguments):
                        hint = f"`arg{node.operator}[{', '.join(node.arguments)}]` gives what is in the brackets alone"
                    self.mismatch(
                        f"`{node.operator}` gives {len(result)} value{'s' if len(result) != 1 else ''},"
                        f" but {len(outputs)} {'are' if len(outputs) != 1 else 'is'} assigned",
                        node.span,
                        hint,
                    )
                for output, t in zip(outputs, result):
                    self.unify(self.expression(output), t, output.span, f"the result of `{node.operator}`")
            case s.InRange(variable=variable, low=low, high=high):
                t = self.expression(variable)
                for bound in (low, high):
                    self.unify(self.expression(bound), t, bound.span, "the other parts of the range")
                self.require(t, "integer", node.span, "a range")
            case s.Case():
                self.case(node)
            case s.Variable() | s.Constant() | s.Binary() | s.Unary() | s.Conditional() | s.Cast() | s.Call():
                t = self.expression(node)
                resolved = resolve(t)
                if resolved is not BOOL:
                    computed = isinstance(node, s.Binary) and node.operator in ARITHMETIC
                    if isinstance(resolved, Open) and resolved.family == "any" and not computed:
                        self.unify(t, BOOL, node.span, "a condition")
                    else:
                        self.mismatch(
                            "a condition in a body must be a comparison or a bool",
                            node.span,
                            "write an atom, a comparison such as `x > 1`, or `n := count(...)`",
                        )
            case _:
                self.mismatch("this cannot stand in a body", node.span)

    def atom(self, node: s.Atom) -> None:
        if node.relation in self.constructors and node.relation not in self.defined_names:
            self.mismatch(
                f"the term `{node.relation}(...)` stands where an atom is expected",
                node.span,
                f"write `case e is {node.relation}(...)` to take a term apart",
            )
        if node.parameters or (node.relation in PREDICATES and node.relation not in self.defined_names):
            if node.relation in AGGREGATES:
                self.mismatch(f"the aggregate `{node.relation}` needs variables and a `:`", node.span)
            self.predicate(node)
            return
        self.arguments(node.relation, node.arguments, self.relation(node.relation, len(node.arguments), node.span))

    def predicate(self, node: s.Atom) -> None:
        """An atom of a foreign predicate: inputs, then outputs."""
        name = node.relation
        if name not in PREDICATES:
            hint = suggestion(name, PREDICATES, f"the foreign predicates are {', '.join(PREDICATES)}")
            self.mismatch(f"unknown foreign predicate `{name}`", node.span, hint)
        signature = PREDICATES[name].signature
        kinds = (*signature.parameters, *signature.results)
        if len(node.arguments) != len(kinds):
            wanted = "one argument" if len(kinds) == 1 else f"{len(kinds) or 'no'} arguments"
            passed = f"{len(node.arguments) or 'none'} {'is' if len(node.arguments) == 1 else 'are'} given"
            self.mismatch(f"`{name}` takes {wanted}, {passed}", node.span, f"it is `{name}{signature}`")
        generics = self.generics(signature)
        if node.parameters:
            if len(node.parameters) != len(generics):
                count = {0: "no type parameters", 1: "one type parameter"}.get(len(generics), f"{len(generics)}")
                message = f"`{name}` has {count}, but {len(node.parameters)} given"
                self.mismatch(message, node.span, f"it is `{name}{signature}`")
            for generic, written in zip(generics.values(), node.parameters):
                self.unify(self.named_type(written, node.span), generic, node.span, f"the type parameter of `{name}`")
        for i, (argument, kind) in enumerate(zip(node.arguments, kinds)):
            t = self.opened(kind, generics)
            if isinstance(argument, s.Wildcard) and i < len(signature.parameters):
                message = f"argument {i + 1} of `{name}` is an input, which a wildcard cannot give"
                self.error(BindingError, message, argument.span, f"the inputs come first: `{name}{signature}`")
            self.unify(self.expression(argument), t, argument.span, f"argument {i + 1} of `{name}`")

    def arguments(self, relation: str, arguments: tuple[Any, ...], columns: list[Type]) -> None:
        for i, (argument, column) in enumerate(zip(arguments, columns)):
            self.unify(self.expression(argument), column, argument.span, f"column {i + 1} of `{relation}`")

    def aggregate(self, node: s.Aggregate) -> list[Type]:
        if node.operator not in AGGREGATES:
            hint = suggestion(node.operator, AGGREGATES, f"the aggregates are {', '.join(AGGREGATES)}")
            self.mismatch(f"unknown aggregate `{node.operator}`", node.span, hint)
        record = AGGREGATES[node.operator]
        wrong = record.misuse(len(node.arguments), len(node.bindings), node.parameters)
        if wrong is not None:
            self.mismatch(wrong[0], node.span, wrong[1])
        # Bindings and bracket variables are local to the aggregate.
        outer = {n: self.scope.pop(n) for n in (*node.bindings, *node.arguments) if n in self.scope}
        local: dict[str, Type] = {name: Open() for name in (*node.bindings, *node.arguments)}
        types_of_names = {name: self.named_type(type_name, node.span) for name, type_name in node.types}
        local.update((name, t) for name, t in types_of_names.items() if name in local)
        self.scope.update(local)
        if node.group_body is not None:
            self.formula(node.group_body)
            for name in node.group:
                t = self.scope.setdefault(name, Open())
                self.unify(t, types_of_names.get(name, t), node.span, f"the group variable `{name}`")
        self.formula(node.body)
        for name in local:
            del self.scope[name]
        self.variables[id(node)] = local
        self.scope.update(outer)
        values = [local[name] for name in node.bindings]
        arguments = [local[name] for name in node.arguments]
        for value, family in zip(values, record.takes or ()):
            self.require(value, family, node.span, f"`{node.operator}`")
        return record.result_types(arguments, values)
