"""Rules that are written as Python functions: the loops, conditions and yields of one as rules of the language."""

from __future__ import annotations

import ast
import builtins
import inspect
import itertools
import linecache
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from types import FunctionType
from typing import Any, NoReturn, cast

from derivable.core.diagnostics import DomainError, Origin, ParseError, Span
from derivable.datalog.foreign.standard import FUNCTIONS
from derivable.datalog.scalars.nodes import walk
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.quotients import floor_quotient, modulo, quotient

_COMPARISONS = {ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_SUMS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*"}
_BITS = {ast.BitAnd: "bit_and", ast.BitOr: "bit_or", ast.BitXor: "bit_xor"}
_CASTS = {"int": "i64", "float": "f64", "str": "String"}
_KINDS = {bool: "bool", int: "integer", float: "float", str: "text"}
_OWN_FUNCTION = "a function of your own can: `@dv.datalog.function`, with annotated parameters"
_COMPREHENSIONS = (ast.GeneratorExp, ast.SetComp, ast.ListComp)


@dataclass(frozen=True)
class _Scope:
    """Where an expression stands.

    literals   what holds there
    variables  Python's names of values -> the rule's variables
    is_inner   whether it is inside an aggregate, whose variables are renamed in the rule
    """

    literals: tuple[s.Expression, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    is_inner: bool = False

    def where(self, literals: Sequence[s.Expression], variables: Mapping[str, str] | None = None) -> _Scope:
        return replace(self, literals=(*self.literals, *literals), variables={**self.variables, **(variables or {})})

    def inside(self) -> _Scope:
        return _Scope((), self.variables, True)

    def beyond(self, outer: _Scope) -> tuple[str, ...]:
        """The rule's variables that it has more than a scope around it."""
        return tuple(variable for name, variable in self.variables.items() if name not in outer.variables)


def rules_of(function: FunctionType, probability: float | None = None) -> tuple[s.Rule, ...]:
    """The rules of a Python function: one for each of its yields, and for each comprehension that it returns.

    The function's name is the relation of the heads; its parameters are the relations of the bodies.
    Raises ParseError, with its span, for Python that is no rule, and DomainError where the source is not at hand.
    """
    return tuple(_Translator(function, probability).rules())


class _Translator:
    def __init__(self, function: FunctionType, probability: float | None):
        self.function, self.probability = function, probability
        try:
            lines, first = inspect.getsourcelines(function)
        except (OSError, TypeError):
            raise DomainError(
                f"the source of the rule {function.__name__!r} is not at hand",
                hint="write it in a file or a cell of a notebook",
            ) from None
        text = "".join(lines)
        self.indent = len(text) - len(text.lstrip(" \t"))
        self.first = max(first, 1) - 1
        self.lines = lines
        file = inspect.getsourcefile(function) or "<rule>"
        self.origin = Origin(file, "".join(linecache.getlines(file)))
        (self.node,) = ast.parse(textwrap.dedent(text)).body
        self.known = {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
        self.relations = set(function.__code__.co_varnames[: function.__code__.co_argcount])
        self.hoisted: list[s.Expression] = []
        self.names = {node.id for node in ast.walk(self.node) if isinstance(node, ast.Name)}

    def rules(self) -> Iterator[s.Rule]:
        node = self.node
        if not isinstance(node, ast.FunctionDef):
            self.error(node, "a rule is a function that is defined with `def`")
        parameters = node.args
        if parameters.vararg or parameters.kwarg or parameters.kwonlyargs or parameters.defaults:
            self.error(node, "the parameters of a rule are the relations that it reads", "give their names alone")
        yield from self.block(node.body, _Scope())

    # Statements

    def block(self, statements: Sequence[ast.stmt], scope: _Scope) -> Iterator[s.Rule]:
        for statement in statements:
            match statement:
                case ast.For(orelse=[]):
                    inner = self.loop(statement.target, statement.iter, scope)
                    yield from self.block(statement.body, inner)
                case ast.If(body=[ast.Continue()], orelse=[]):
                    scope = self.filtered(scope, self.negated, statement.test)
                case ast.If():
                    yield from self.block(statement.body, self.filtered(scope, self.condition, statement.test))
                    if statement.orelse:
                        yield from self.block(statement.orelse, self.filtered(scope, self.negated, statement.test))
                case ast.Assign(targets=[target]):
                    scope = self.assigned(target, statement.value, scope)
                case ast.Expr(value=ast.Yield(value=value)):
                    yield self.rule(value, scope, statement)
                case ast.Expr(value=ast.YieldFrom(value=value)):
                    yield from self.comprehended(value, scope)
                case ast.Return(value=value) if value is not None:
                    yield from self.comprehended(value, scope)
                case ast.Pass() | ast.Expr(value=ast.Constant(value=str())):
                    pass
                case _:
                    self.error(
                        statement,
                        f"a rule has no {type(statement).__name__.lower()}",
                        "it has `for` over relations, `if`, assignments to new names, `yield` and `return`",
                    )

    def loop(self, target: ast.expr, over: ast.expr, scope: _Scope) -> _Scope:
        match over:
            case ast.Name(id=name) if name in self.relations:
                bound: dict[str, str] = {}
                arguments = []
                for one in target.elts if isinstance(target, ast.Tuple) else [target]:
                    arguments.append(self.bound(one, scope.where([], bound), bound))
                return scope.where([self.at(over, s.Atom(name, tuple(arguments)))], bound)
            case ast.Call(func=ast.Name(id="range"), args=[*bounds], keywords=[]) if 1 <= len(bounds) <= 2:
                bound = {}
                variable = self.bound(target, scope, bound)
                low = self.expression(bounds[0], scope) if len(bounds) == 2 else s.Constant(0, "integer")
                within = s.InRange(variable, low, self.expression(bounds[-1], scope), False)
                return scope.where([*self.flush(), self.at(over, within)], bound)
        return self.error(
            over, "a loop of a rule is over one of its relations, or over `range`", f"the relations are {self.listed()}"
        )

    def bound(self, target: ast.expr, scope: _Scope, bound: dict[str, str]) -> Any:
        """The variable of a loop's name, which is added to `bound`."""
        if not isinstance(target, ast.Name):
            self.error(target, "a loop binds names", "give the column a name, and compare it in an `if`")
        if target.id == "_":
            # Rows that are counted differ in all columns.
            variable = bound[f"_{len(bound)}"] = self.fresh("_")
            return self.at(target, s.Variable(variable) if scope.is_inner else s.Wildcard())
        self.require_new(target, scope)
        variable = bound[target.id] = self.fresh(target.id) if scope.is_inner else target.id
        return self.at(target, s.Variable(variable))

    def fresh(self, name: str) -> str:
        """A variable that the rule has not yet."""
        name = name.strip("_") or "v"
        variable = next(one for n in itertools.count(1) if (one := f"{name}{n}") not in self.names)
        self.names.add(variable)
        return variable

    def require_new(self, target: ast.Name, scope: _Scope) -> None:
        if target.id in scope.variables:
            self.error(
                target,
                f"{target.id!r} is bound already",
                f"give this one another name, and compare: `if {target.id} == ...`",
            )
        if target.id in self.relations:
            self.error(target, f"{target.id!r} is a relation of this rule", "give the variable another name")

    def filtered(self, scope: _Scope, meaning: Callable[[ast.expr, _Scope], s.Expression], test: ast.expr) -> _Scope:
        literal = meaning(test, scope)
        return scope.where([*self.flush(), literal])

    def assigned(self, target: ast.expr, value: ast.expr, scope: _Scope) -> _Scope:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
            for one, its_value in zip(target.elts, value.elts):
                scope = self.assigned(one, its_value, scope)
            return scope
        if not isinstance(target, ast.Name):
            self.error(target, "an assignment of a rule is to a new name")
        self.require_new(target, scope)
        right = self.expression(value, scope)
        equation = self.at(target, s.Binary("==", s.Variable(target.id), right))
        return scope.where([*self.flush(), equation], {target.id: target.id})

    def rule(self, value: ast.expr | None, scope: _Scope, statement: ast.AST) -> s.Rule:
        if value is None:
            self.error(statement, "a yield of a rule is a tuple of the relation", "yield a, b")
        values = value.elts if isinstance(value, ast.Tuple) else [value]
        arguments = tuple(self.expression(one, scope) for one in values)
        literals = (*scope.literals, *self.flush())
        head = self.at(statement, s.Atom(self.function.__name__, arguments))
        tag = None if self.probability is None else s.Constant(float(self.probability), "float")
        return self.at(statement, s.Rule((head,), _conjunction(literals) if literals else None, tag))

    def comprehended(self, value: ast.expr, scope: _Scope) -> Iterator[s.Rule]:
        match value:
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                yield from self.comprehended(left, scope)
                yield from self.comprehended(right, scope)
            case ast.GeneratorExp() | ast.SetComp() | ast.ListComp():
                yield self.rule(value.elt, self.generated(value, scope), value)
            case ast.Name(id=name) if name in self.relations:
                self.error(
                    value, f"the columns of {name!r} have no names here", f"return {{(a, b) for a, b in {name}}}"
                )
            case ast.Set(elts=elements):
                for element in elements:
                    yield self.rule(element, scope, element)
            case _:
                self.error(value, "a rule returns a comprehension", "return {(a, c) for a, b in edge for c, d in edge}")

    def generated(self, node: Any, scope: _Scope) -> _Scope:
        for generator in node.generators:
            scope = self.loop(generator.target, generator.iter, scope)
            for test in generator.ifs:
                scope = self.filtered(scope, self.condition, test)
        return scope

    # Conditions

    def condition(self, test: ast.expr, scope: _Scope) -> s.Expression:
        match test:
            case ast.BoolOp(op=ast.And(), values=values):
                return self.at(test, s.Conjunction(tuple(self.condition(one, scope) for one in values)))
            case ast.BoolOp(op=ast.Or(), values=values):
                return self.at(test, s.Disjunction(tuple(self.condition(one, scope) for one in values)))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.negated(operand, scope)
            case ast.Compare():
                return _conjunction([self.compared(*pair, scope) for pair in _pairs(test)])
            case ast.Call(func=ast.Name(id="any"), args=[argument]) if isinstance(argument, _COMPREHENSIONS):
                return self.exists(argument, self.condition, scope)
            case ast.Call(func=ast.Name(id="all"), args=[argument]) if isinstance(argument, _COMPREHENSIONS):
                return self.at(test, s.Not(self.exists(argument, self.negated, scope)))
        return self.expression(test, scope)

    def negated(self, test: ast.expr, scope: _Scope) -> s.Expression:
        match test:
            case ast.BoolOp(op=operator, values=values):
                kind = s.Disjunction if isinstance(operator, ast.And) else s.Conjunction
                return self.at(test, kind(tuple(self.negated(one, scope) for one in values)))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.condition(operand, scope)
            case ast.Compare():
                literals = [_negation(self.compared(*pair, scope)) for pair in _pairs(test)]
                return literals[0] if len(literals) == 1 else self.at(test, s.Disjunction(tuple(literals)))
        return self.at(test, _negation(self.condition(test, scope)))

    def compared(self, left: ast.expr, operator: ast.cmpop, right: ast.expr, scope: _Scope) -> s.Expression:
        if isinstance(operator, (ast.In, ast.NotIn)):
            holds = self.member(left, right, scope)
            return _negation(holds) if isinstance(operator, ast.NotIn) else holds
        if type(operator) not in _COMPARISONS:
            self.error(left, "a rule compares values", "== instead of `is`")
        sides = self.expression(left, scope), self.expression(right, scope)
        return self.at(left, s.Binary(_COMPARISONS[type(operator)], *sides))

    def member(self, element: ast.expr, collection: ast.expr, scope: _Scope) -> s.Expression:
        match collection:
            case ast.Name(id=name) if name in self.relations:
                values = element.elts if isinstance(element, ast.Tuple) else [element]
                return self.at(collection, s.Atom(name, tuple(self.expression(one, scope) for one in values)))
            case ast.Tuple(elts=elements) | ast.Set(elts=elements) | ast.List(elts=elements) if elements:
                value = self.expression(element, scope)
                equal = tuple(s.Binary("==", value, self.expression(one, scope)) for one in elements)
                return self.at(collection, equal[0] if len(equal) == 1 else s.Disjunction(equal))
        return self.error(
            collection, "`in` is for a relation, or for a few values", f"the relations are {self.listed()}"
        )

    def exists(self, node: Any, meaning: Callable[[ast.expr, _Scope], s.Expression], scope: _Scope) -> s.Expression:
        before = self.flush()
        inner = self.generated(node, scope.inside())
        if not (isinstance(node.elt, ast.Constant) and node.elt.value is True and meaning == self.condition):
            inner = self.filtered(inner, meaning, node.elt)
        names = inner.beyond(scope)
        self.hoisted = before
        return self.at(node, s.Aggregate("exists", names, _conjunction(inner.literals)))

    # Values

    def expression(self, node: ast.expr, scope: _Scope) -> s.Expression:
        return self.at(node, self.value(node, scope))

    def value(self, node: ast.expr, scope: _Scope) -> s.Expression:
        match node:
            case ast.Name(id=name):
                return self.named(node, name, scope)
            case ast.Constant(value=value) if type(value) in _KINDS:
                return s.Constant(value, _KINDS[type(value)])
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=value)) if type(value) in (int, float):
                return s.Constant(-cast(float, value), _KINDS[type(value)])
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return s.Unary("-", self.expression(operand, scope))
            case ast.BinOp(left=left, op=operator, right=right):
                return self.arithmetic(node, type(operator), left, right, scope)
            case ast.IfExp(test=test, body=then, orelse=otherwise):
                return s.Conditional(*(self.expression(one, scope) for one in (test, then, otherwise)))
            case ast.BoolOp(op=operator, values=values):
                symbol = "&&" if isinstance(operator, ast.And) else "||"
                truths = [self.expression(one, scope) for one in values]
                return reduce(lambda left, right: s.Binary(symbol, left, right), truths)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return s.Unary("!", self.expression(operand, scope))
            case ast.Compare():
                return self.truth(node, scope)
            case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
                return self.call(node, name, arguments, scope)
        return self.error(node, f"a rule cannot compute `{ast.unparse(node)}`", _OWN_FUNCTION)

    def truth(self, test: ast.Compare, scope: _Scope) -> s.Expression:
        """A comparison as a value."""
        truths = []
        for left, operator, right in _pairs(test):
            if isinstance(right, ast.Name) and right.id in self.relations:
                self.error(right, "whether a relation has a tuple is a condition, and no value", "test it in an `if`")
            holds = self.compared(left, operator, right, scope)
            truths += [_alternatives(holds)] if isinstance(holds, s.Disjunction) else [holds]
        return reduce(lambda left, right: s.Binary("&&", left, right), truths)

    def named(self, node: ast.expr, name: str, scope: _Scope) -> s.Expression:
        if name in scope.variables:
            return s.Variable(scope.variables[name])
        if name in self.relations:
            self.error(node, f"the relation {name!r} is no value", f"for a, b in {name}: ..., or `(a, b) in {name}`")
        constant = self.known.get(name)
        if type(constant) in _KINDS:
            return s.Constant(constant, _KINDS[type(constant)])
        return self.error(
            node, f"{name!r} is not bound here", "a loop or an assignment above binds names; others are constants"
        )

    def arithmetic(
        self, node: ast.expr, operator: type, left: ast.expr, right: ast.expr, scope: _Scope
    ) -> s.Expression:
        if operator is ast.Pow:
            if not (isinstance(right, ast.Constant) and type(right.value) is int and right.value >= 0):
                self.error(node, "a power of a rule has a constant exponent, an integer from 0 on")
            return s.Call("pow", (self.expression(left, scope), s.Constant(right.value, "integer")))
        a, b = self.expression(left, scope), self.expression(right, scope)
        if operator in _SUMS:
            return s.Binary(_SUMS[operator], a, b)
        if operator in _BITS:
            return s.Call(_BITS[operator], (a, b))
        if operator is ast.Div:
            return quotient(s.Cast(a, "f64"), s.Cast(b, "f64"), self.span(node))
        if operator is ast.Mod:
            return modulo(a, b, self.span(node))
        if operator is ast.FloorDiv:
            return floor_quotient(a, b, self.span(node))
        return self.error(node, f"a rule cannot compute `{ast.unparse(node)}`", _OWN_FUNCTION)

    def call(self, node: ast.expr, name: str, arguments: list[ast.expr], scope: _Scope) -> s.Expression:
        value = self.known.get(name, getattr(builtins, name, None))
        comprehension = arguments[0] if len(arguments) == 1 and isinstance(arguments[0], _COMPREHENSIONS) else None
        if value in (len, sum, min, max) and comprehension is not None:
            return self.aggregated(name, comprehension, scope)
        if value in (any, all):
            self.error(
                node, f"{name!r} is of a comprehension, and a condition", f"if {name}(a == 1 for a, b in edge): ..."
            )
        values = tuple(self.expression(one, scope) for one in arguments)
        if value is abs or (value in (min, max) and len(values) > 1):
            return s.Call(name, values)
        if value in (int, float, str) and len(values) == 1:
            return s.Cast(values[0], _CASTS[name])
        title = next((title for title in FUNCTIONS.names() if FUNCTIONS[title].call is value), None)
        if title is not None and value is not None:
            return s.Call(title, values)
        return self.error(
            node, f"{name!r} is no function of rules", "make it one: `@dv.datalog.function`, with annotated parameters"
        )

    def aggregated(self, name: str, node: Any, scope: _Scope) -> s.Expression:
        """The variable of an aggregate over what a comprehension goes through, which becomes a literal of the rule."""
        before = self.flush()
        inner = self.generated(node, scope.inside())
        rows = inner.beyond(scope)
        elements = node.elt.elts if isinstance(node.elt, ast.Tuple) else [node.elt]
        is_count = name == "len" or (name == "sum" and isinstance(node.elt, ast.Constant) and node.elt.value == 1)
        if is_count and not (name == "len" and isinstance(node, ast.SetComp)):
            operator, bindings, brackets = "count", rows, ()
        else:
            if isinstance(node, ast.SetComp) and name == "sum":
                self.error(node, "a sum over a set adds equal values once", "sum(x for ...), or count them: len({...})")
            if not is_count and len(elements) > 1:
                self.error(node.elt, f"{name!r} of a rule is of single values")
            names = []
            for element in elements:
                expression = self.expression(element, inner)
                inner = inner.where(self.flush())
                if not (isinstance(expression, s.Variable) and expression.name in rows):
                    fresh = s.Variable(self.fresh("v"))
                    inner = inner.where([s.Binary("==", fresh, expression)])
                    expression = fresh
                names.append(expression.name)
            operator = "count" if is_count else name
            bindings = tuple(dict.fromkeys(names))
            brackets = tuple(row for row in rows if row not in bindings) if name == "sum" else ()
        groups = tuple(one for one in scope.variables.values() if _mentions(inner.literals, one))
        context = self.context(node, scope, groups)
        result = s.Variable(self.fresh(name))
        aggregate = s.Aggregate(
            operator,
            bindings,
            _conjunction(inner.literals),
            outputs=(result,),
            arguments=brackets,
            group=groups,
            group_body=_conjunction(context) if groups else None,
        )
        self.hoisted = [*before, self.at(node, aggregate)]
        # The language counts without a sign, and differences of counts may have one.
        return s.Cast(result, "i64") if operator == "count" else result

    def context(self, node: ast.AST, scope: _Scope, groups: Sequence[str]) -> list[s.Expression]:
        """What holds around an aggregate, without the results of other aggregates."""
        literals, results = [], set()
        for literal in scope.literals:
            if isinstance(literal, s.Aggregate) and literal.outputs:
                results |= {one.name for one in literal.outputs if isinstance(one, s.Variable)}
            elif any(_mentions([literal], one) for one in results):
                results |= {one for one in scope.variables.values() if _mentions([literal], one)} - _atoms(literals)
            else:
                literals.append(literal)
        if results & set(groups):
            self.error(
                node,
                "an aggregate depends on another one's result",
                "derive that in another rule, and loop over it",
            )
        return literals

    def flush(self) -> list[s.Expression]:
        hoisted, self.hoisted = self.hoisted, []
        return hoisted

    # Positions and errors

    def at(self, node: ast.AST, made: Any) -> Any:
        return replace(made, span=self.span(node))

    def span(self, node: Any) -> Span:
        line = self.lines[node.lineno - 1]
        start = len(line.encode()[: self.indent + node.col_offset].decode(errors="ignore"))
        is_one_line = node.end_lineno == node.lineno
        length = node.end_col_offset - node.col_offset if is_one_line else len(line.rstrip()) - start
        return Span(self.first + node.lineno, start + 1, max(1, length), self.origin)

    def error(self, node: ast.AST, message: str, hint: str | None = None) -> NoReturn:
        raise ParseError(message, hint=hint, span=self.span(node))

    def listed(self) -> str:
        return ", ".join(sorted(self.relations)) or "none: they are the function's parameters"


def _pairs(test: ast.Compare) -> list[tuple[ast.expr, ast.cmpop, ast.expr]]:
    return list(zip([test.left, *test.comparators], test.ops, test.comparators))


def _conjunction(literals: Sequence[s.Expression]) -> s.Expression:
    return literals[0] if len(literals) == 1 else s.Conjunction(tuple(literals))


def _negation(literal: s.Expression) -> s.Expression:
    match literal:
        case s.Not(operand=operand):
            return operand
        case s.Atom() | s.Aggregate():
            return s.Not(literal, span=literal.span)
        case s.Disjunction(operands=operands):
            return s.Conjunction(tuple(map(_negation, operands)), span=literal.span)
        case s.Conjunction(operands=operands):
            return s.Disjunction(tuple(map(_negation, operands)), span=literal.span)
    return s.Unary("!", literal, span=literal.span)


def _atoms(literals: Sequence[s.Expression]) -> set[str]:
    """The variables of the atoms and ranges."""
    arguments = [one for atom in literals if isinstance(atom, s.Atom) for one in atom.arguments]
    arguments += [within.variable for within in literals if isinstance(within, s.InRange)]
    return {one.name for one in arguments if isinstance(one, s.Variable)}


def _alternatives(literal: s.Disjunction) -> s.Expression:
    return reduce(lambda left, right: s.Binary("||", left, right), literal.operands)


def _mentions(literals: Sequence[s.Expression], name: str) -> bool:
    parts = (part for literal in literals for part in walk(literal))
    return any(isinstance(part, s.Variable) and part.name == name for part in parts)
