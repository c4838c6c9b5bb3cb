"""Functions, predicates, attributes and plugins of Python."""

import pickle
import typing
import warnings
from argparse import ArgumentParser

import pytest
import torch

import derivable.compat.scallopy as scallopy
from derivable.compat.scallopy.attribute import ErrorAction, MultipleActions, RemoveItemAction
from derivable.core.diagnostics import DerivableError


def answers(ctx, relation):
    ctx.run()
    return list(ctx.relation(relation))


# Functions


def test_functions():
    @scallopy.foreign_function
    def shout(text: str, mark: str | None = None) -> str:
        return text.upper() + (mark or "!")

    @scallopy.ff(name="total")
    def add_up(*numbers: int) -> scallopy.i32:
        return sum(numbers)

    ctx = scallopy.ScallopContext()
    ctx.register_foreign_function(shout)
    ctx.register_foreign_function(add_up)
    ctx.add_relation("word", (str, int))
    ctx.add_facts("word", [("a", 1), ("b", 2)])
    ctx.add_rule("loud($shout(w)) = word(w, _)")
    ctx.add_rule('asked($shout(w, "?"), $total(n, n, 1)) = word(w, n)')
    assert answers(ctx, "loud") == [("A!",), ("B!",)]
    assert list(ctx.relation("asked")) == [("A?", 3), ("B?", 5)]
    assert shout("x") == "X!"


def test_functions_belong_to_their_contexts():

    def contexts_of(offset):
        @scallopy.foreign_function
        def shifted(n: int) -> scallopy.i32:
            return n + offset

        ctx = scallopy.ScallopContext()
        ctx.register_foreign_function(shifted)
        ctx.add_program("rel a = {10} rel b($shifted(x)) = a(x)")
        return ctx, ctx.clone()

    found = [contexts_of(1), contexts_of(2)]
    for offset, contexts in zip((1, 2), found):
        for ctx in contexts:
            assert answers(ctx, "b") == [(10 + offset,)]
    with pytest.raises(DerivableError, match="shifted"):
        scallopy.ScallopContext().add_program("rel a = {10} rel b($shifted(x)) = a(x)")


def test_a_name_is_registered_once():
    @scallopy.ff
    def twice(x: scallopy.i32) -> scallopy.i32:
        return 2 * x

    @scallopy.fp
    def below(x: int) -> scallopy.Generator[None, tuple[int]]:
        yield from ((i,) for i in range(x))

    ctx = scallopy.ScallopContext()
    ctx.register_foreign_function(twice)
    ctx.register_foreign_predicate(below)
    # A clone has what its original has, and another context does not.
    for one in (ctx, ctx.clone()):
        with pytest.raises(DerivableError, match="`twice` is registered already"):
            one.register_foreign_function(twice)
        with pytest.raises(DerivableError, match="`below` is registered already"):
            one.register_foreign_predicate(below)
    scallopy.ScallopContext().register_foreign_function(twice)
    ctx.add_rule("out($twice(x)) = below(3, x)")
    assert answers(ctx, "out") == [(0,), (2,), (4,)]


def test_generic_functions():
    kind = scallopy.Generic(scallopy.Number)

    @scallopy.foreign_function
    def doubled(x: kind) -> kind:
        return x + x

    ctx = scallopy.ScallopContext()
    ctx.register_foreign_function(doubled)
    ctx.add_relation("n", scallopy.u8)
    ctx.add_relation("x", float)
    ctx.add_facts("n", [3])
    ctx.add_facts("x", [1.5])
    ctx.add_rule("out($doubled(a), $doubled(b)) = n(a), x(b)")
    assert answers(ctx, "out") == [(6, 3.0)]


@pytest.mark.parametrize(
    ("family", "accepted", "refused"),
    [
        (int, "i8", "f32"),
        (float, "f64", "i32"),
        (any, "String", None),
        ("Integer", "u64", "String"),
        (None, "f32", None),
    ],
)
def test_families_of_generic_functions(family, accepted, refused):
    kind = scallopy.Generic(family)

    @scallopy.foreign_function
    def same(x: kind) -> kind:
        return x

    ctx = scallopy.ScallopContext()
    ctx.register_foreign_function(same)
    ctx.add_relation("a", accepted)
    ctx.add_rule("out($same(x)) = a(x)")
    ctx.add_facts("a", ["text" if accepted == "String" else 1])
    assert answers(ctx, "out") == [("text",)] if accepted == "String" else [(1,)]
    if refused is not None:
        ctx.add_relation("b", refused)
        with pytest.raises(DerivableError, match="same"):
            ctx.add_rule("bad($same(x)) = b(x)")


def test_functions_that_fail_drop_the_row():
    @scallopy.foreign_function
    def inverse(x: int) -> scallopy.f32:
        return 1 / x

    def quiet(x: int) -> scallopy.f32:
        return 1 / x

    ctx = scallopy.ScallopContext()
    ctx.register_foreign_function(inverse)
    ctx.register_foreign_function(scallopy.foreign_function(quiet, suppress_warning=True))
    ctx.add_program("rel n = {0, 2} rel p($inverse(x)) = n(x) rel q($quiet(x)) = n(x)")
    with pytest.warns(UserWarning, match="ZeroDivisionError"):
        assert answers(ctx, "p") == [(0.5,)]
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        assert list(ctx.relation("q")) == [(0.5,)]


def test_results_of_functions():
    """Scalars of libraries are numbers, tensors are values, and what is of another kind drops the row."""

    @scallopy.foreign_function
    def norm(x: scallopy.Tensor) -> scallopy.f32:
        return x.norm()

    @scallopy.foreign_function
    def doubled(x: scallopy.Tensor) -> scallopy.Tensor:
        return 2 * x

    @scallopy.foreign_function
    def broken(x: int) -> scallopy.i32:
        return 0.5 if x else 1

    ctx = scallopy.ScallopContext()
    for one in (norm, doubled, broken):
        ctx.register_foreign_function(one)
    ctx.add_relation("image", scallopy.Tensor)
    ctx.add_facts("image", [(torch.tensor([3.0, 4.0]),)])
    ctx.add_program("rel size($norm($doubled(x))) = image(x) rel n = {0, 1} rel m($broken(x)) = n(x)")
    with pytest.warns(UserWarning, match="returned 0.5"):
        assert answers(ctx, "size") == [(10.0,)]
    assert list(ctx.relation("m")) == [(1,)]


def no_result(x: int):
    return x


def family(x: int) -> int:
    return x


def default(x: int, y: int = 3) -> scallopy.i32:
    return x


def keyword(x: int, *, y: int) -> scallopy.i32:
    return x


def unannotated(x) -> scallopy.i32:
    return x


def stranger(x: list) -> scallopy.i32:
    return 1


def free(x: int) -> scallopy.Generic():
    return x


@pytest.mark.parametrize("wrong", [no_result, family, default, keyword, unannotated, stranger, free])
def test_wrong_functions(wrong):
    with pytest.raises(DerivableError):
        scallopy.foreign_function(wrong)


def test_functions_of_tensors_get_them():
    @scallopy.foreign_function
    def largest(x: scallopy.Tensor) -> scallopy.usize:
        assert isinstance(x, torch.Tensor)
        return int(x.argmax())

    ctx = scallopy.ScallopContext()
    ctx.register_foreign_function(largest)
    ctx.add_relation("image", scallopy.Tensor)
    ctx.add_facts("image", [(torch.tensor([0.1, 0.9]),)])
    ctx.add_rule("place($largest(x)) = image(x)")
    assert answers(ctx, "place") == [(1,)]


# Predicates


def test_predicates():
    @scallopy.foreign_predicate
    def factors(n: int) -> scallopy.Facts[None, tuple[int, int]]:
        for a in range(1, n + 1):
            if n % a == 0:
                yield (a, n // a)

    @scallopy.fp(input_arg_types=[scallopy.i32], output_arg_types=[str], tag_type=None, name="named")
    def name_of(n):
        yield f"n{n}"

    ctx = scallopy.ScallopContext()
    ctx.register_foreign_predicate(factors)
    ctx.register_foreign_predicate(name_of)
    ctx.add_program("rel n = {4} rel f(a, b) = n(x), factors(x, a, b) rel w(s) = n(x), named(x, s)")
    assert answers(ctx, "f") == [(1, 4), (2, 2), (4, 1)]
    assert list(ctx.relation("w")) == [("n4",)]


@pytest.mark.parametrize("provenance", ["minmaxprob", "topkproofs", "difftopkproofs"])
def test_predicates_with_tags(provenance):
    @scallopy.foreign_predicate
    def near(x: float, y: float) -> scallopy.Facts[float, tuple[()]]:
        yield (1.0 / (1.0 + abs(x - y)), ())

    ctx = scallopy.ScallopContext(provenance)
    ctx.register_foreign_predicate(near)
    ctx.add_relation("x", float, non_probabilistic=True)
    ctx.add_facts("x", [(0.0,), (1.0,)])
    ctx.add_rule("close(a, b) = x(a), x(b), near(a, b)")
    assert {row: torch.as_tensor(tag).item() for tag, row in answers(ctx, "close")}[0.0, 1.0] == 0.5


def test_generic_predicates():
    kind = scallopy.Generic(scallopy.Integer)

    @scallopy.foreign_predicate(type_params=[kind])
    def below(n: kind) -> scallopy.Facts[None, kind]:
        yield from range(n)

    ctx = scallopy.ScallopContext()
    ctx.register_foreign_predicate(below)
    ctx.add_program("type n(u8) rel n = {3} rel b(x) = n(a), below<u8>(a, x)")
    assert answers(ctx, "b") == [(0,), (1,), (2,)]


def test_wrong_predicates():
    def optional(x: int, y: int | None = None) -> scallopy.Facts[None, int]:
        yield x

    def silent(x: int):
        yield x

    for wrong in (optional, silent):
        with pytest.raises(DerivableError):
            scallopy.foreign_predicate(wrong)


@pytest.mark.parametrize(
    ("facts", "rows"),
    [
        (scallopy.Facts[int, str], [(1, "a"), (2, "b")]),
        (scallopy.Facts[typing.Tuple[int, str]], [(1, "a"), (2, "b")]),  # noqa: UP006
        (scallopy.Facts[None, tuple[int, str]], [(1, "a")]),
        (scallopy.Facts[None, typing.Tuple["i32", "String"]], [(1, "a")]),  # noqa: UP006, F821
        (scallopy.Facts[float, (int, str)], [(0.5, (1, "a")), (0.25, (2, "b"))]),
        (scallopy.Facts[float, tuple[int, str]], [(0.5, (1, "a"))]),
        (scallopy.Facts[scallopy.Tensor, (int, str)], [(torch.tensor(0.5), (1, "a"))]),
        (scallopy.Facts[scallopy.prob, (int, str)], [(0.5, (1, "a"))]),
    ],
)
def test_annotations_of_what_predicates_yield(facts, rows):
    def source():
        yield from rows

    source.__annotations__["return"] = facts
    ctx = scallopy.ScallopContext("minmaxprob")
    ctx.register_foreign_predicate(scallopy.foreign_predicate(source))
    ctx.add_rule("out(x, s) = source(x, s)")
    found = [(tag, row) for tag, row in answers(ctx, "out")]
    assert found == [(1.0, row) if isinstance(row[1], str) else row for row in rows]


@pytest.mark.parametrize("size", [None, 1, 2, 5])
def test_batched_predicates_take_many_inputs_at_once(size):
    seen = []

    @scallopy.foreign_predicate(batched=True, batch_size=size)
    def multiples(pairs: scallopy.BatchedTuples[int, int]) -> scallopy.BatchedFacts[float, (int,)]:
        seen.append(list(pairs))
        return [[(0.5**factor, (n * factor,)) for factor in range(1, count + 1)] for n, count in pairs]

    ctx = scallopy.ScallopContext("minmaxprob")
    ctx.register_foreign_predicate(multiples)
    ctx.add_program(
        "rel n = {(1, 0), (2, 3), (3, 1), (4, 2), (5, 0), (6, 1)} rel out(n, m) = n(n, k), multiples(n, k, m)"
    )
    expected = {(n, n * f): 0.5**f for n, count in ((2, 3), (3, 1), (4, 2), (6, 1)) for f in range(1, count + 1)}
    assert {row: tag for tag, row in answers(ctx, "out")} == expected
    assert sorted(pair for part in seen for pair in part) == [(1, 0), (2, 3), (3, 1), (4, 2), (5, 0), (6, 1)]
    assert max(map(len, seen)) == (size or 6)
    assert len(seen) == (1 if size is None else -(-6 // size))


def test_batched_predicates_that_fail():
    @scallopy.foreign_predicate(batched=True, batch_size=2)
    def reciprocals(numbers: scallopy.BatchedTuples[float]) -> scallopy.BatchedFacts[float]:
        return [[(1 / x,)] for (x,) in numbers] if len(numbers) == 2 else []

    ctx = scallopy.ScallopContext()
    ctx.register_foreign_predicate(reciprocals)
    ctx.add_program("rel n = {0.0, 1.0, 2.0, 4.0, 5.0} rel out(x, y) = n(x), reciprocals(x, y)")
    # The first two fail, and so does the last one, which has no list.
    with pytest.warns(UserWarning, match="reciprocals failed"):
        assert answers(ctx, "out") == [(2.0, 0.5), (4.0, 0.25)]

    def one(x: int) -> scallopy.BatchedFacts[None, int]:
        return []

    with pytest.raises(DerivableError, match="does not take a list of tuples"):
        scallopy.foreign_predicate(one, batched=True)


# Attributes


def test_attributes_give_functions_and_predicates():
    seen = []

    @scallopy.foreign_attribute
    def scale(item, factor, *, offset=0):
        assert item.is_relation_decl()
        declaration = item.relation_decl(0)
        seen.append((declaration.name.name, [one.ty.name() for one in declaration.arg_bindings]))

        @scallopy.foreign_predicate(
            name=declaration.name.name, input_arg_types=[scallopy.i32], output_arg_types=[scallopy.i32], tag_type=None
        )
        def scaled(x):
            yield (factor * x + offset,)

        return scaled

    @scallopy.foreign_attribute
    def noted(item):
        seen.append(str(item))

    @scallopy.foreign_attribute(name="never")
    def removed(item):
        return RemoveItemAction()

    ctx = scallopy.ScallopContext()
    for attribute in (scale, noted, removed):
        ctx.register_foreign_attribute(attribute)
    ctx.add_program(
        """
        @scale(3, offset=1) type times(bound x: i32, y: i32)
        @noted rel n = {1, 2}
        @never rel n = {5}
        rel out(y) = n(x), times(x, y)
        """
    )
    assert answers(ctx, "out") == [(4,), (7,)]
    assert seen[0] == ("times", ["i32", "i32"])
    assert "n" in seen[1]


def test_a_processor_sees_the_syntax_of_an_item():
    items = []

    @scallopy.foreign_attribute
    def seen(item, *arguments, **keywords):
        items.append((item, arguments, keywords))

    ctx = scallopy.ScallopContext()
    ctx.register_foreign_attribute(seen)
    ctx.add_program(
        """
        type Tree = Leaf() | Node(i32, Tree)
        rel n = {1, 2}
        @seen(1, "a", [2.5, true], pair=(1, "b"), nested=[("x", [1])])
        type parse(bound text: String, free kind: Symbol, u8), size(t: Tree)
        @seen type $a_half_seen(x: f32) -> f32
        @seen rel weight = {0.5::(1, "a"); 0.25::(2, "b")}
        @seen @hidden rel 0.75::big(x as f32, -y) = n(x), y in 0..3, not n(y), (if x > y then 1 else 2) == $abs(y)
        @seen rel deep(t, i) = n(m), t == new Node(m, new Leaf()), i := count!(x: n(x) where k: n(k))
        @seen rel leaf(t) = case t is Leaf() and (n(_) or exists(x: n(x)))
        @seen rel one(1, 'c')
        @seen query weight(1, x)
        @seen query n
        """
    )
    declared, arguments, keywords = items[0]
    assert (arguments, keywords) == ((1, "a", [2.5, True]), {"pair": (1, "b"), "nested": [("x", [1])]})
    assert declared.key() == "TypeDecl"
    assert declared.is_relation_decl()
    assert not declared.is_function_decl()
    assert [one.name.name for one in declared.relation_decls()] == ["parse", "size"]
    text, kind, third = declared.relation_decl(0).arg_bindings
    assert text.adornment.is_bound()
    assert kind.adornment.is_free()
    assert not kind.adornment.is_bound()
    assert (text.name.name, third.name, third.adornment, third.ty.name()) == ("text", None, None, "u8")
    assert text.ty.is_string()
    assert kind.ty.is_symbol()
    assert not kind.ty.is_u8()
    assert declared.relation_decl(1).arg_bindings[0].ty.name() == "Tree"
    assert [one.name.name for one in declared.as_typedecl().as_relation().attrs] == ["seen"]
    assert (declared.loc().line, text.loc().line) == (5, 5)
    assert declared.as_querydecl() is None
    with pytest.raises(DerivableError, match="declares no function"):
        declared.function_decl_name()

    half, weight, big, deep, leaf, one, atom, whole = (item for item, _, _ in items[1:])
    assert half.function_decl_name() == "a_half_seen"
    assert half.function_decl_ret_type().is_f32()
    assert [t.to_python_type() for t in half.function_decl_arg_types()] == [float]
    with pytest.raises(DerivableError, match="declares no relation"):
        half.relation_decl(0)

    facts = weight.as_relationdecl().as_set()
    assert facts.name.name == "weight"
    assert facts.set.is_disjunction
    row = facts.set.tuples[1]
    assert row.tag.as_constant().as_float().float == 0.25
    assert row.tuple.elems[0].as_constant().as_integer().int == 2
    assert row.tuple.elems[1].as_constant().as_string().string == "b"

    rule = big.as_relationdecl().as_rule()
    assert rule.tag.as_constant().as_float().float == 0.75
    assert len(rule.attrs) == 2
    cast, minus = rule.rule.head.as_atom().args
    assert cast.as_unary().op.is_typecast()
    assert cast.as_unary().op.as_typecast().is_f32()
    assert minus.as_unary().op.is_neg()
    assert minus.as_unary().op1.as_variable().name.name == "y"
    first, between, absent, equal = rule.rule.body.as_conjunction().args
    assert first.as_atom().predicate.name == "n"
    limits = between.as_range()
    assert (limits.left.name.name, limits.upper.as_constant().as_integer().int, limits.inclusive) == ("y", 3, False)
    assert absent.as_negatom().atom.args[0].is_variable()
    sides = equal.as_constraint().expr.as_binary()
    assert sides.op.op == "Eq"
    assert sides.op1.as_ifthenelse().cond.as_binary().op.op == "Gt"
    assert sides.op2.as_call().function_identifier.id.name == "abs"

    _, made, counted = deep.as_relationdecl().as_rule().rule.body.as_conjunction().args
    assert made.as_constraint().expr.as_binary().op2.as_new().functor.name == "Node"
    counted = counted.as_reduce()
    assert counted.operator.name.name == "count"
    assert counted.operator.has_exclaimation_mark
    assert [v.as_variable().name.name for v in counted.left] == ["i"]
    assert [b.name.name for b in counted.bindings] == ["x"]
    assert counted.group_by[0][0].name.name == "k"

    case, either = leaf.as_relationdecl().as_rule().rule.body.as_conjunction().args
    assert (case.as_case().variable.name.name, case.as_case().entity.as_object().functor.name) == ("t", "Leaf")
    some = either.as_disjunction().args
    assert some[0].as_atom().args[0].is_wildcard()
    assert not some[1].as_forallexistsreduce().negate

    fact = one.as_relationdecl().as_fact()
    assert fact.tag is None
    assert fact.atom.args[1].as_constant().as_char().character == "c"
    assert atom.is_querydecl()
    assert len(atom.as_querydecl().query.as_atom().args) == 2
    assert whole.as_querydecl().query.as_predicate().name == "n"
    for item, _, _ in items:
        assert repr(item).startswith(item.key())
        assert repr(item.loc()).startswith("[")
    with pytest.raises(AttributeError, match="its fields are attrs, tag, atom"):
        repr(fact.body)
    with pytest.raises(AttributeError, match="as_relationdecl"):
        repr(one.name)


def test_values_of_types_in_attributes():
    found = {}

    @scallopy.foreign_attribute
    def constants(item, *texts):
        (declaration,) = item.relation_decls()
        types = [one.ty for one in declaration.arg_bindings]
        found.update((t.name(), t) for t in types)

        @scallopy.foreign_predicate(name=declaration.name.name, output_arg_types=types)
        def row():
            yield tuple(t.parse_value(text) for t, text in zip(types, texts))

        return row

    ctx = scallopy.ScallopContext()
    ctx.register_foreign_attribute(constants)
    ctx.add_program(
        """
        @constants("3.0", 4, "True", "no", "x") type p(u8, f64, bool, bool, String)
        rel out(a, b, c, d, e) = p(a, b, c, d, e)
        """
    )
    assert answers(ctx, "out") == [(3, 4.0, True, False, "x")]
    assert [t.to_python_type() for t in found.values()] == [int, float, bool, str]
    ctx.add_program('@constants("3") type t(Tensor)')
    with pytest.raises(DerivableError, match="Tensor"):
        found["Tensor"].to_python_type()


def test_attributes_of_several_relations_and_of_files(tmp_path):
    @scallopy.foreign_attribute
    def multiples(item, *factors):
        def made(factor, relation):
            types = [one.ty for one in relation.arg_bindings]

            @scallopy.foreign_predicate(name=relation.name.name, input_arg_types=types[:1], output_arg_types=types[1:])
            def times(x):
                yield (factor * x,)

            return times

        return [made(*pair) for pair in zip(factors, item.relation_decls(), strict=True)]

    (tmp_path / "inner.scl").write_text("@multiples(5) type five(bound x: i32, y: i32)\nrel n = {1, 2}")
    (tmp_path / "outer.scl").write_text('import "inner.scl"\nrel fives(y) = n(x), five(x, y)')
    ctx = scallopy.ScallopContext()
    ctx.register_foreign_attribute(multiples)
    ctx.import_file(str(tmp_path / "outer.scl"))
    ctx.add_program(
        """
        @multiples(2, 3) type two(bound x: i32, y: i32), three(bound x: i32, y: i32)
        @multiples(7) type seven(bound x: i32, y: i32)
        rel out(a, b, c) = n(x), two(x, a), three(x, b), seven(x, c)
        """
    )
    assert answers(ctx, "out") == [(2, 3, 7), (4, 6, 14)]
    assert list(ctx.relation("fives")) == [(5,), (10,)]


def test_actions_of_attributes():
    @scallopy.foreign_attribute
    def act(item, what):
        return {
            "nothing": None,
            "keep": MultipleActions([]),
            "drop": MultipleActions([MultipleActions([RemoveItemAction()])]),
            "refuse": ErrorAction("not here"),
            "wrong": 3,
        }[what]

    ctx = scallopy.ScallopContext()
    ctx.register_foreign_attribute(act)
    ctx.add_program('@act("nothing") rel n = {1} @act("keep") rel n = {2} @act("drop") rel n = {3}')
    assert answers(ctx, "n") == [(1,), (2,)]
    for what, message in (("refuse", "not here"), ("wrong", "gives 3")):
        with pytest.raises(DerivableError, match=message):
            ctx.add_program(f'@act("{what}") rel n = {{4}}')
    assert answers(ctx, "n") == [(1,), (2,)]


def test_attributes_that_fail():
    @scallopy.foreign_attribute
    def strict(item):
        assert item.is_function_decl(), "only functions"

    ctx = scallopy.ScallopContext()
    ctx.register_foreign_attribute(strict)
    with pytest.raises(DerivableError, match="only functions"):
        ctx.add_program("@strict type n(i32)")
    with pytest.raises(DerivableError, match="unknown"):
        ctx.add_program("@unknown type n(i32)")


# Plugins


class Greeting(scallopy.Plugin):
    def __init__(self, word="hello"):
        super().__init__()
        self.word = word

    def setup_argparse(self, parser):
        parser.add_argument("--word", default="hello")

    def configure(self, args=None, unknown_args=()):
        self.word = (args or {})["word"]

    def load_into_ctx(self, ctx):
        @scallopy.foreign_function
        def greet(name: str) -> str:
            return f"{self.word} {name}"

        ctx.register_foreign_function(greet)


def test_plugins():
    registry = scallopy.PluginRegistry(load_stdlib=True)
    registry.load_plugin(Greeting())
    assert registry.loaded_plugins() == ["CmdArgPlugin", "PyEvalPlugin", "Greeting"]
    with pytest.raises(DerivableError, match="`Greeting` is loaded already"):
        registry.load_plugin(Greeting())
    registry.load_plugin(Greeting("hi"), overwrite=True)
    parser = ArgumentParser()
    registry.setup_argument_parser(parser)
    known, unknown = parser.parse_known_args(["--word", "good day"])
    registry.configure(vars(known), unknown)
    ctx = scallopy.ScallopContext()
    registry.load_into_ctx(ctx)
    ctx.add_program('rel who = {"Ada"} rel out($greet(x)) = who(x) rel sum($py_eval("1 + 1")) = who(_)')
    assert answers(ctx, "out") == [("good day Ada",)]
    assert list(ctx.relation("sum")) == [("2",)]
    with pytest.raises(DerivableError, match="plugin"):
        registry.load_plugin(3)
    registry.remove_all_plugins()
    assert registry.loaded_plugins() == []
    assert scallopy.Plugin("own").name == "own"
    with pytest.raises(DerivableError, match="text for its name"):
        scallopy.Plugin(3)
    only = scallopy.PluginRegistry(load_from_entry_points=True, filter=lambda name: False)
    assert only.loaded_plugins() == []


def test_names():
    assert scallopy.torch_tensor_enabled()
    assert scallopy.Context is scallopy.ScallopContext
    assert scallopy.Module is scallopy.ForwardFunction is scallopy.ScallopForwardFunction
    assert scallopy.i8.__name__ == "i8"
    for name in scallopy.__all__:
        assert getattr(scallopy, name) is not None


def test_tags_of_predicates_have_gradients():
    scale = torch.tensor(0.5, requires_grad=True)

    @scallopy.foreign_predicate
    def near(x: int, y: int) -> scallopy.Facts[scallopy.Tensor, tuple[()]]:
        yield (scale ** abs(x - y), ())

    ctx = scallopy.ScallopContext("difftopkproofs", k=5)
    ctx.register_foreign_predicate(near)
    ctx.add_relation("x", int, input_mapping=range(3))
    ctx.add_rule("pair(a, b) = x(a), x(b), near(a, b), a < b")
    forward = ctx.forward_function("pair", [(0, 1), (0, 2)])
    p = torch.full((2, 3), 0.5, requires_grad=True)
    for _ in range(2):
        scale.grad = None
        y = forward(x=p)
        assert y.tolist() == [[0.125, 0.0625]] * 2
        y[:, 1].sum().backward()
        assert scale.grad is not None
        assert float(scale.grad) == 2 * 0.25 * 2 * 0.5


def test_similarity_of_tensors():
    ctx = scallopy.ScallopContext("difftopkproofs")
    ctx.add_relation("vector", (int, scallopy.Tensor))
    ctx.add_rule("same(i, j) = vector(i, x), vector(j, y), soft_eq<Tensor>(x, y), i < j")
    ctx.add_rule("other(i, j) = vector(i, x), vector(j, y), soft_neq<Tensor>(x, y), i < j")
    x = torch.tensor([1.0, 0.0], requires_grad=True)
    y = torch.tensor([1.0, 3.0])
    ctx.add_facts("vector", [(None, (0, x)), (None, (1, y))])
    ctx.run()
    ((same, row),) = ctx.relation("same")
    ((other, _),) = ctx.relation("other")
    assert row == (0, 1)
    expected = torch.cosine_similarity(x, y, dim=0) + 0.5
    torch.testing.assert_close(same, expected)
    torch.testing.assert_close(other, 1 - expected)
    torch.testing.assert_close(torch.autograd.grad(same, x), torch.autograd.grad(expected, x))


@scallopy.foreign_function
def tripled(x: int) -> scallopy.i32:
    return 3 * x


def test_contexts_with_functions_are_pickled():
    ctx = scallopy.ScallopContext()
    ctx.register_foreign_function(tripled)
    ctx.add_program("rel a = {2} rel b($tripled(x)) = a(x)")
    assert answers(pickle.loads(pickle.dumps(ctx)), "b") == [(6,)]


def test_standard_plugins():
    registry = scallopy.PluginRegistry(load_stdlib=True)
    registry.configure({}, ["-n", "4"])
    ctx = scallopy.ScallopContext()
    registry.load_into_ctx(ctx)
    ctx.add_program("""
        @cmd_arg("-n", "--number") type number(n: i32)
        @cmd_arg("-m", default=0.5) type factor(x: f32)
        @cmd_arg("-x") type missing(s: String)
        @py_eval type $int_of(code: String) -> i32
        @py_eval type all_of(bound code: String, value: f32)
        rel out(n, x) = number(n), factor(x)
        rel none() = missing(_)
        rel made($int_of("3 + 4"), y) = all_of("1 / 4", y)
    """)
    assert answers(ctx, "out") == [(4, 0.5)]
    assert list(ctx.relation("none")) == []
    assert list(ctx.relation("made")) == [(7, 0.25)]


def test_bare_tuples_are_empty():
    @scallopy.foreign_predicate
    def alike(a: str, b: str) -> scallopy.Facts[float, tuple]:
        if a == b:
            yield (1.0, ())
        elif {a, b} == {"mom", "mother"}:
            yield (0.99, ())

    ctx = scallopy.Context(provenance="minmaxprob")
    ctx.register_foreign_predicate(alike)
    ctx.add_program("""
        rel kinship = {("alice", "mom", "bob"), ("alice", "mother", "cassey")}
        rel parent(a, b) = kinship(a, r, b) and alike(r, "mother")
        rel sibling(a, b) = parent(c, a) and parent(c, b) and a != b
        query sibling
    """)
    assert answers(ctx, "sibling") == [(0.99, ("bob", "cassey")), (0.99, ("cassey", "bob"))]
