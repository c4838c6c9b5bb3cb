"""Items of programs as processors of attributes see them: nodes in the shape of Scallop's syntax tree.

A node is a struct, whose fields are attributes; a variant, that says what an item, a formula or an expression is
(`item.is_typedecl()`, `item.as_typedecl()`); an enum, for words such as `bound`; a type; or a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from derivable.core.diagnostics import Span, TypeMismatchError
from derivable.datalog.syntax import nodes as s

_PYTHON_TYPES = {
    **dict.fromkeys(("u8", "u16", "u32", "u64", "u128", "usize", "i8", "i16", "i32", "i64", "i128", "isize"), int),
    **dict.fromkeys(("f32", "f64"), float),
    **dict.fromkeys(("char", "String", "Symbol", "DateTime", "Duration", "Entity"), str),
    "bool": bool,
}


class NodeLocation:
    """The place of a node in the text of its program: 1-based line and column, and the number of characters."""

    def __init__(self, span: Span):
        self.line, self.column, self.length = span.line, span.column, span.length

    def __repr__(self) -> str:
        return f"[{self.line}:{self.column} - {self.line}:{self.column + self.length}]"


class AstNode:
    """A node; `is_...()` is false for whatever a node is not."""

    def __init__(self, location: NodeLocation | None = None):
        self._location = location

    def loc(self) -> NodeLocation | None:
        """Its place; None for a node that is part of no text."""
        return self._location

    def __getattr__(self, name: str) -> Any:
        if name.startswith("is_"):
            return lambda: False
        raise AttributeError(f"the node {type(self).__name__} has no `{name}`")


class AstConstantNode(AstNode):
    """A value of Python."""

    def __init__(self, value: Any):
        super().__init__()
        self._value = value

    def get(self) -> Any:
        """The value."""
        return self._value

    def __repr__(self) -> str:
        return f'"{self._value}"' if isinstance(self._value, str) else str(self._value)


class AstStructNode(AstNode):
    """A node with fields, which are attributes: nodes, lists of nodes, or values."""

    def __init__(self, location: NodeLocation | None, fields: Mapping[str, Any]):
        super().__init__(location)
        self._fields = dict(fields)

    def __getattr__(self, name: str) -> Any:
        fields = self.__dict__.get("_fields", {})
        if name in fields:
            found = fields[name]
            return found.get() if isinstance(found, AstConstantNode) else found
        if name.startswith("is_"):
            return lambda: False
        raise AttributeError(f"the node has no field `{name}`; its fields are {', '.join(fields)}")

    def __repr__(self) -> str:
        return f"{{{', '.join(f'{name}: {value}' for name, value in self._fields.items())}}}"


class _Cased(AstNode):
    """A node of one case of several, with what is in it or None: `is_x()` and `as_x()` for the name of each case."""

    def __init__(self, location: NodeLocation | None, key: str, internal: Any = None):
        super().__init__(location)
        self._key, self._internal = key, internal

    def key(self) -> str:
        """The name of the case."""
        return self._key

    def __getattr__(self, name: str) -> Any:
        start, _, case = name.partition("_")
        own = self.__dict__.get("_key", "").lower()
        if start == "is" and case:
            return lambda: own == case
        if start == "as" and case:
            return lambda: self._internal if own == case else None
        raise AttributeError(f"the node {self.__dict__.get('_key')} has no `{name}`, only is_{own}() and as_{own}()")

    def __repr__(self) -> str:
        return self._key if self._internal is None else f"{self._key}({self._internal})"


class AstEnumNode(_Cased):
    """One word of several, as `Bound` and `Free`."""


class AstVariantNode(_Cased):
    """An item, a formula, an expression or a constant: what it is, and the node of that."""

    def loc(self) -> NodeLocation | None:
        """The place of the node in it."""
        return self._internal.loc()

    def is_function_decl(self) -> bool:
        """Whether the item declares a function."""
        return self._key == "TypeDecl" and self._internal.is_function()

    def is_relation_decl(self) -> bool:
        """Whether the item declares relations."""
        return self._key == "TypeDecl" and self._internal.is_relation()

    def _declared(self, what: str) -> Any:
        found = getattr(self._internal, f"as_{what}")() if self._key == "TypeDecl" else None
        if found is None:
            raise TypeMismatchError(f"the item {self._key} declares no {what}")
        return found

    def function_decl_name(self) -> str:
        """The name of the function that the item declares. Raises TypeMismatchError if it declares none."""
        return self._declared("function").func_name.name

    def function_decl_arg_types(self) -> list[AstTypeNode]:
        """The types of its arguments. Raises TypeMismatchError if the item declares no function."""
        return [argument.ty for argument in self._declared("function").args]

    def function_decl_ret_type(self) -> AstTypeNode:
        """The type of its result. Raises TypeMismatchError if the item declares no function."""
        return self._declared("function").ret_ty

    def relation_decls(self) -> list[AstStructNode]:
        """The relations that the item declares, each with `name.name` and `arg_bindings`, which have `name`, `ty` and
        `adornment`. Raises TypeMismatchError if it declares none."""
        return self._declared("relation").rel_types

    def relation_decl(self, place: int = 0) -> AstStructNode:
        """One of these relations."""
        return self.relation_decls()[place]


class AstTypeNode(AstNode):
    """A type as the language writes it; `is_string()`, `is_i32()`, ... for each type."""

    def __init__(self, location: NodeLocation | None, type_name: str):
        super().__init__(location)
        self._type_name = type_name

    def name(self) -> str:
        """The type as the language writes it."""
        return self._type_name

    def to_python_type(self) -> type:
        """int, float, bool or str. Raises TypeMismatchError for a type of other values, such as tensors."""
        if self._type_name not in _PYTHON_TYPES:
            raise TypeMismatchError(f"the values of the type `{self._type_name}` are of no type of Python alone")
        return _PYTHON_TYPES[self._type_name]

    def parse_value(self, text: Any) -> Any:
        """The value of Python that a text says, or a number that JSON has for it."""
        kind = self.to_python_type()
        if kind is bool:
            return text if isinstance(text, bool) else text in ("true", "True")
        return int(float(text)) if kind is int else kind(text)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("is_"):
            return lambda: self._type_name.lower() == name[3:]
        raise AttributeError(f"the type {self.__dict__.get('_type_name')} has no `{name}`")

    def __repr__(self) -> str:
        return f"Type({self._type_name})"


# From the nodes of derivable to these


def item_node(items: Sequence[s.Item], attributes: Sequence[s.Attribute]) -> AstVariantNode:
    """The node of a statement: one item, or the declarations of one `type a(...), b(...)`."""
    item = items[0]
    attrs = [_attribute(one) for one in attributes]
    if isinstance(item, s.RelationType):
        relations = [
            _struct(one, name=_name(one, one.name), arg_bindings=_columns(one.columns))
            for one in items
            if isinstance(one, s.RelationType)
        ]
        return _declaration(item, "Relation", attrs=attrs, rel_types=relations)
    return _ITEMS[type(item)](item, attrs)


def _declaration(item: s.Node, case: str, **fields: Any) -> AstVariantNode:
    return _variant("TypeDecl", _variant(case, _struct(item, **fields)))


def _variant(case: str, internal: Any) -> AstVariantNode:
    return AstVariantNode(None, case, internal)


def _struct(node: s.Node, **fields: Any) -> AstStructNode:
    shown = {
        name: value if isinstance(value, (AstNode, list)) else AstConstantNode(value) for name, value in fields.items()
    }
    return AstStructNode(NodeLocation(node.span), shown)


def _name(node: s.Node, name: str | None) -> AstStructNode | None:
    return None if name is None else _struct(node, name=name)


def _names(node: s.Node, names: Iterable[str]) -> list[AstStructNode]:
    return [_struct(node, name=_name(node, name)) for name in names]


def _type(node: s.Node, name: str | None) -> AstTypeNode | None:
    return None if name is None else AstTypeNode(NodeLocation(node.span), name)


def _columns(columns: Sequence[s.Column]) -> list[AstStructNode]:
    return [
        _struct(
            one,
            adornment=None
            if one.adornment is None
            else AstEnumNode(NodeLocation(one.span), one.adornment.capitalize()),
            name=_name(one, one.name),
            ty=_type(one, one.type_name),
        )
        for one in columns
    ]


def _attribute(one: s.Attribute) -> AstStructNode:
    def value(given: Any) -> Any:
        if isinstance(given, tuple):
            return _variant(
                "Tuple" if isinstance(given, s.Group) else "List", _struct(one, values=list(map(value, given)))
            )
        kind = {bool: "bool", int: "integer", float: "float"}.get(type(given), "text")
        return _expression(s.Constant(given, kind, span=one.span))

    args = [
        _variant("Pos", value(given))
        if name is None
        else _variant("Kw", _struct(one, name=_name(one, name), value=value(given)))
        for name, given in one.arguments
    ]
    return _struct(one, name=_name(one, one.name), args=args)


def _fact_set(item: s.FactSet | s.FactTable, attrs: list) -> AstVariantNode:
    if isinstance(item, s.FactSet):
        facts = item.facts
    else:
        rows = [tuple(map(s.Constant, row, item.kinds)) for row in zip(*item.columns)]
        tags = [None] * len(rows) if item.tags is None else [s.Constant(tag, "float") for tag in item.tags]
        facts = tuple(map(s.Fact, rows, tags))
    tuples = [_struct(f, tag=_tag(f.tag), tuple=_struct(f, elems=_expressions(f.arguments))) for f in facts]
    inside = _struct(item, tuples=tuples, is_disjunction=item.exclusive)
    return _relation(item, "Set", attrs=attrs, name=_name(item, item.relation), set=inside)


def _rule(item: s.Rule, attrs: list) -> AstVariantNode:
    atoms = [_atom(head) for head in item.heads]
    if item.body is None and len(atoms) == 1:
        return _relation(item, "Fact", attrs=attrs, tag=_tag(item.tag), atom=atoms[0])
    case = "Disjunction" if item.exclusive_heads else "Conjunction"
    head = _variant("Atom", atoms[0]) if len(atoms) == 1 else _variant(case, _struct(item, atoms=atoms))
    body = None if item.body is None else _formula(item.body)
    return _relation(item, "Rule", attrs=attrs, tag=_tag(item.tag), rule=_struct(item, head=head, body=body))


def _relation(item: s.Node, case: str, **fields: Any) -> AstVariantNode:
    return _variant("RelationDecl", _variant(case, _struct(item, **fields)))


def _query(item: s.Query, attrs: list) -> AstVariantNode:
    if item.arguments is None:
        query = _variant("Predicate", _name(item, item.relation))
    else:
        query = _variant("Atom", _atom(s.Atom(item.relation, item.arguments, span=item.span)))
    return _variant("QueryDecl", _struct(item, attrs=attrs, query=query))


_ITEMS: dict[type, Callable[[Any, list], AstVariantNode]] = {
    s.FunctionType: lambda item, attrs: _declaration(
        item,
        "Function",
        attrs=attrs,
        func_name=_name(item, item.name),
        args=_columns(item.parameters),
        ret_ty=_type(item, item.result),
    ),
    s.FactSet: _fact_set,
    s.FactTable: _fact_set,
    s.Rule: _rule,
    s.ReduceRule: lambda item, attrs: _relation(
        item, "Reduce", attrs=attrs, name=_name(item, item.relation), reduce=_aggregate(item.aggregate)
    ),
    s.Query: _query,
}


# Formulas and expressions


def _tag(tag: s.Expression | None) -> AstNode | None:
    return None if tag is None else _expression(tag)


def _atom(atom: s.Atom) -> AstStructNode:
    types = [_type(atom, name) for name in atom.parameters]
    return _struct(atom, predicate=_name(atom, atom.relation), type_args=types, args=_expressions(atom.arguments))


def _formula(node: s.Expression) -> AstVariantNode:
    match node:
        case s.Atom():
            return _variant("Atom", _atom(node))
        case s.Not(operand=s.Atom() as atom):
            return _variant("NegAtom", _struct(node, atom=_atom(atom)))
        case s.Not(operand=s.Aggregate(outputs=None) as inside):
            return _variant("ForallExistsReduce", _aggregate(inside, True))
        case s.Not(operand=operand):
            return _variant("Not", _struct(node, formula=_formula(operand)))
        case s.Case(subject=subject, pattern=pattern):
            return _variant("Case", _struct(node, variable=_expression(subject).as_variable(), entity=_entity(pattern)))
        case s.Conjunction(operands=operands) | s.Disjunction(operands=operands):
            return _variant(type(node).__name__, _struct(node, args=list(map(_formula, operands))))
        case s.Implies(condition=left, conclusion=right):
            return _variant("Implies", _struct(node, left=_formula(left), right=_formula(right)))
        case s.InRange(variable=variable, low=low, high=high, inclusive=inclusive):
            ends = _struct(
                node,
                left=_expression(variable).as_variable(),
                lower=_expression(low),
                upper=_expression(high),
                inclusive=inclusive,
            )
            return _variant("Range", ends)
        case s.Aggregate(outputs=None):
            return _variant("ForallExistsReduce", _aggregate(node))
        case s.Aggregate():
            return _variant("Reduce", _aggregate(node))
    return _variant("Constraint", _struct(node, expr=_expression(node)))


def _aggregate(node: s.Aggregate, negate: bool = False) -> AstStructNode:
    types = dict(node.types)

    def bindings(names: Iterable[str]) -> list[AstStructNode]:
        return [_struct(node, name=_name(node, name), ty=_type(node, types.get(name))) for name in names]

    group = None
    if node.group_body is not None:
        group = [bindings(node.group), _formula(node.group_body)]
    operator = _struct(
        node,
        name=_name(node, node.operator),
        params=[_expression(s.Constant(value, "text", span=node.span)) for _, value in node.parameters],
        has_exclaimation_mark=node.discrete,
    )
    fields = {"operator": operator, "bindings": bindings(node.bindings), "body": _formula(node.body), "group_by": group}
    if node.outputs is None:
        return _struct(node, negate=negate, **fields)
    return _struct(node, left=_expressions(node.outputs), args=_names(node, node.arguments), **fields)


def _entity(node: s.Expression) -> AstVariantNode:
    if isinstance(node, s.Atom):
        parts = _struct(node, functor=_name(node, node.relation), args=list(map(_entity, node.arguments)))
        return _variant("Object", parts)
    return _variant("Expr", _expression(node))


def _expressions(nodes: Iterable[s.Expression]) -> list[AstVariantNode]:
    return list(map(_expression, nodes))


_CONSTANTS = {
    "integer": ("Integer", "int"),
    "float": ("Float", "float"),
    "bool": ("Boolean", "value"),
    "char": ("Char", "character"),
    "text": ("String", "string"),
    "symbol": ("Symbol", "symbol"),
    "datetime": ("DateTime", "datetime"),
    "duration": ("Duration", "duration"),
}
_UNARY = {"-": "Neg", "+": "Pos", "!": "Not"}
_BINARY = {
    "+": "Add",
    "-": "Sub",
    "*": "Mul",
    "/": "Div",
    "%": "Mod",
    "&&": "And",
    "||": "Or",
    "^": "Xor",
    "==": "Eq",
    "!=": "Neq",
    "<": "Lt",
    "<=": "Leq",
    ">": "Gt",
    ">=": "Geq",
}


def _expression(node: s.Expression) -> AstVariantNode:
    place = NodeLocation(node.span)
    match node:
        case s.Constant(value=value, kind=kind):
            case, field = _CONSTANTS[kind]
            return _variant("Constant", _variant(case, _struct(node, **{field: value})))
        case s.Variable(name=name):
            return _variant("Variable", _struct(node, name=_name(node, name)))
        case s.Wildcard():
            return _variant("Wildcard", _struct(node))
        case s.Unary(operator=operator, operand=a):
            parts = _struct(node, op=AstEnumNode(place, _UNARY[operator]), op1=_expression(a))
            return _variant("Unary", parts)
        case s.Cast(operand=a, type_name=name):
            parts = _struct(node, op=AstEnumNode(place, "TypeCast", _type(node, name)), op1=_expression(a))
            return _variant("Unary", parts)
        case s.Binary(operator=operator, left=a, right=b):
            parts = _struct(node, op=_struct(node, op=_BINARY[operator]), op1=_expression(a), op2=_expression(b))
            return _variant("Binary", parts)
        case s.Conditional(condition=condition, then=a, otherwise=b):
            parts = _struct(node, cond=_expression(condition), then_br=_expression(a), else_br=_expression(b))
            return _variant("IfThenElse", parts)
        case s.Call(name=name, arguments=arguments):
            function = _struct(node, id=_name(node, name))
            return _variant("Call", _struct(node, function_identifier=function, args=_expressions(arguments)))
        case s.New(constructor=name, arguments=arguments):
            return _variant("New", _struct(node, functor=_name(node, name), args=_expressions(arguments)))
    return _entity(node)
