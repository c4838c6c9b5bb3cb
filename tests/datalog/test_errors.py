"""Every user error: its report, byte for byte, in tests/golden/datalog/."""

from pathlib import Path

import numpy as np
import pytest

import derivable as dv
import golden_files
from derivable.core.diagnostics import DerivableWarning

EDGE = "type edge(a: usize, b: usize)\n"
TREE = "type Tree = Leaf() | Node(i32, Tree)\n"

PROGRAMS = {
    "syntax_missing_parenthesis": "rel path(a, b = edge(a, b)",
    "syntax_two_atoms": "rel path(a, b) = edge(a, b) edge(b, a)",
    "syntax_not_an_item": "path(a, b) = edge(a, b)",
    "syntax_open_text": 'rel name("Ada)',
    "syntax_open_comment": "rel a(1) /* never closed",
    "syntax_underscore_name": "rel _p(1)",
    "syntax_keyword_as_name": "type where(i32)",
    "syntax_chained_comparison": "rel p(x) = q(x), 1 < x < 3",
    "syntax_single_equals": "rel p(x) = q(x), x = 3",
    "syntax_mixed_separators": "rel p = {0.3::1; 0.4::2, 0.3::3}",
    "syntax_head_is_not_an_atom": "rel x + 1 = q(x)",
    "syntax_empty_body": "rel p(x) =\nquery p",
    "syntax_range": "rel p(x) = x in 3",
    "syntax_too_deep": "rel p(x) = q(x), " + "(" * 300 + "x > 1" + ")" * 300,
    "unbound_head_variable": EDGE + "rel path(a, c) = edge(a, b)",
    "unbound_head_of_a_tagged_rule": EDGE + "rel 0.5::path(a, c) = edge(a, b)",
    "unbound_negated_variable": EDGE + "rel lonely(a) = edge(a, _), not edge(b, a), b > 1",
    "unbound_expression": EDGE + "rel p(a) = edge(a, _), c > a",
    "unbound_range": "rel p(x) = x in 0..n",
    "unbound_head_without_body": "rel p(x)",
    "wildcard_in_head": EDGE + "rel p(_) = edge(_, _)",
    "arity_of_declared": EDGE + "rel path(a, b) = edge(a, b, c)",
    "arity_of_inferred": "rel p(1, 2)\nrel q(x) = p(x)",
    "arity_of_facts": EDGE + "rel edge = {(0, 1), (2, 3, 4)}",
    "type_clash_of_fact": EDGE + 'rel edge = {(0, "one")}',
    "type_clash_of_rule": "type name(String), age(i32)\nrel p(x) = name(x), age(x)",
    "type_clash_of_widths": "type a(i32), b(usize)\nrel p(x + y) = a(x), b(y)",
    "syntax_prolog_dot": "path(a, b) :- edge(a, b).",
    "enum_value_twice": "type Colour = Red = 1 | Green = 0 | Blue",
    "cast_float_to_char": "rel p = {65.0} rel q(x as char) = p(x)",
    "literal_too_large_for_float": f"type w(f32)\nrel w({10**39})",
    "type_clash_comparison": 'rel p(x) = q(x), x > 1, x != "a"',
    "type_out_of_range": "type p(u8)\nrel p(256)",
    "type_unknown": "type edge(usze, usize)",
    "date_literal": 'rel p(t"2024-02-30")',
    "duration_literal": 'rel p(d"3 fortnights")',
    "date_clash": 'rel p = {t"2024-02-28"}\nrel q(x + 1) = p(x)',
    "date_times": 'rel p = {d"2d"}\nrel q(x * x) = p(x)',
    "date_cast": 'rel p = {t"2024-02-28"}\nrel q(x as i32) = p(x)',
    "type_not_a_condition": "rel p(x) = q(x), x + 1",
    "extreme_without_its_value": "rel q = {(1, 2)} rel best(c) = _ := max[c](n: q(c, n))",
    "atom_as_value": "rel p(q(x)) = q(x)",
    "aggregate_unknown": "rel n(c) = c := cuont(x: p(x))",
    "aggregate_unknown_parameter": "rel n(i, x) = (i, x) := sort<acs=true>(x: p(x))",
    "aggregate_without_parameters": "rel n(c) = c := count<3>(x: p(x))",
    "aggregate_parameter_of_wrong_type": 'rel n(c) = c := top<"a">(x: p(x))',
    "aggregate_parameter_below_zero": "rel n(c) = c := top<-1>(x: p(x))",
    "aggregate_parameter_missing": "rel n(c) = c := uniform(x: p(x))",
    "aggregate_parameter_twice": "rel n(c) = c := top<3, k=4>(x: p(x))",
    "aggregate_too_many_parameters": "rel n(c) = c := top<3, 4>(x: p(x))",
    "aggregate_contradiction": "rel n(i, x) = (i, x) := rank<asc, desc>(x: p(x))",
    "aggregate_with_brackets": "rel n(c) = c := top<3>[y](x: p(x, y))",
    "aggregate_of_nothing": "rel n(c) = c := max(p(1))",
    "aggregate_of_two": "rel n(c) = c := avg(x, y: p(x, y))",
    "aggregate_weighted_of_integers": "type p(i32)\nrel n(c) = c := weighted_sum(x: p(x))",
    "aggregate_too_many_results": "rel n(a, b) = (a, b) := count(x: p(x))",
    "aggregate_without_variables": "rel n(x) = x := argmax(s: p(s, x))",
    "aggregate_not_used": "rel n() = count(x: p(x))",
    "aggregate_stray_group": "rel c(k, n, z) = n := count(x: p(k, x, z) where k: key(k)), q(z)",
    "aggregate_sum_of_text": "type p(String)\nrel s(n) = n := sum(x: p(x))",
    "not_stratifiable": "rel win(x) = move(x, y), not win(y)",
    "not_stratifiable_long": "rel a(x) = s(x), not b(x)\nrel b(x) = c(x)\nrel c(x) = a(x), t(x)",
    "not_stratifiable_times": "rel on(0)\nrel on(t) = on(s), t == s + 1, not off(s)\nrel off(t) = on(t), not on(t - 1)",
    "not_stratifiable_min": "type edge(i32, i32, i32)\n"
    "rel way(x, d) = d := min(d: edge(x, _, d))\nrel way(x, d) = d := min(d: edge(x, y, a), way(y, b), d == a + b)",
    "not_stratifiable_aggregate": "rel size(n) = n := count(x: big(x))\nrel big(x) = size(n), item(x), x > n as i32",
    "declared_twice": "type edge(usize, usize)\nrel edge(0, 1)\ntype edge(usize, usize)",
    "alias_declared_twice": "type Id = usize\ntype Id = i32",
    "query_unknown": EDGE + "rel path(a, b) = edge(a, b)\nquery pth",
    "exclusive_without_tag": "rel d = {0.9::1; 2}",
    "fact_with_variable": "rel d = {x}",
    "unknown_attribute": "@sparkle(3) rel p(1)",
    "data_type_one_variant": "type Tree = Leaf(i32)",
    "data_type_mixed_with_enum": "type Tree = Leaf | Node(i32, Tree)",
    "data_type_variant_without_parentheses": "type Tree = Node(i32, Tree) | Leaf",
    "data_type_constructor_twice": "type Tree = Leaf() | Node(i32, Tree)\ntype List = Nil() | Leaf(i32, List)",
    "data_type_endless": "type Tree = Fork(Tree, Tree) | Node(i32, Tree)",
    "data_type_unknown_field": "type Tree = Leaf() | Node(i32, Tre)",
    "term_unknown_constructor": TREE + "rel p(t) = case t is Nod(_, _)",
    "term_unknown_constructor_of_new": TREE + "rel p(new Nodes(1, t)) = q(t)",
    "term_new_of_enum": "type Colour = Red | Green\n" + TREE + "rel p(new Red()) = q(1)",
    "term_new_of_type": TREE + "rel p(new Tree(1)) = q(1)",
    "term_new_without_types": "rel p(new Node(1)) = q(1)",
    "term_arity": TREE + "rel p(t) = case t is Node(_)",
    "term_arity_of_new": TREE + "rel p(new Leaf(1)) = q(1)",
    "term_field_type": TREE + 'rel p(t) = case t is Node("a", _)',
    "term_field_of_other_type": TREE + "type List = Nil() | Cons(i32, List)\nrel p(new Node(1, l)) = case l is Nil()",
    "term_pattern_of_other_type": TREE + "type r(i32)\nrel p(x) = r(x), case x is Leaf()",
    "term_in_fact_of_other_type": TREE + "type List = Nil() | Cons(i32, List)\ntype r(List)\nrel r = {Leaf()}",
    "term_in_fact_field_type": TREE + 'type r(Tree)\nrel r = {Leaf(), Node(1,\n  Node("a", Leaf()))}',
    "term_in_fact_unknown": TREE + "type r(Tree)\nrel r = {Leaf(), Node(1, Leav())}",
    "term_as_atom": TREE + "rel p(x) = Node(x, _)",
    "term_without_parentheses": TREE + "rel p(t) = case t is Leaf",
    "term_cast": TREE + "type r(Tree)\nrel p(t as i32) = r(t)",
    "term_is_without_case": TREE + "rel p(t) = t is Leaf()",
    "term_new_with_wildcard": TREE + "rel p(new Node(_, t)) = case t is Leaf()",
    "term_new_unbound": TREE + "rel p(new Node(x, t)) = case t is Leaf()",
    "term_negated_unbound": TREE + "rel p() = not case t is Leaf()",
    "term_constant_with_variable": TREE + "const T = Node(x, Leaf())",
    "term_constant_of_itself": TREE + "const A = Node(1, B)\nconst B = Node(2, A)",
    "term_constant_of_other_type": TREE + "const A: i32 = Leaf()",
    "function_unknown": "rel p($string_lenght(x)) = q(x)",
    "function_declared": "type $gpt_like(s: String) -> String\nrel p($gpt_like(x)) = q(x)",
    "function_declared_otherwise": "type $string_length(s: String) -> i32",
    "function_arguments": 'rel p($substring("a"))',
    "function_type": "type q(i32)\nrel p($string_length(x)) = q(x)",
    "function_generic": "type q(f32), r(f64)\nrel p($max(x, y)) = q(x), r(y)",
    "predicate_arguments": 'rel p(i) = string_chars("abc", i)',
    "predicate_input": "rel p(i) = string_chars(_, i, _)",
    "predicate_input_unbound": "rel p(i) = string_chars(s, i, _)",
    "predicate_output_type": 'type q(i32)\nrel p(i) = string_chars("abc", i, _), q(i)',
    "predicate_type_parameters": 'rel p(i) = string_chars<usize>("abc", i, _)',
    "predicate_unknown": "rel p(i) = rnge<usize>(0, 3, i)",
    "syntax_several": "rel p(1\nrel q(x) = p(x), x = 3\nrel r(x) = p(x)\ntype 3(i32)\nquery r",
    "types_several": "type p(String)\nrel p(1)\nrel q(x) = p(x, x)\nrel r(x) = p(x), x > 1\nrel s(x) = p(x)",
    "bindings_several": EDGE + "rel p(c) = edge(a, b)\n@sparkle rel q(x) = edge(x, _)\nrel r(x) = edge(x, _), y > x",
    "syntax_escape": 'rel path("C:\\dir")',
    "syntax_number_suffix": "rel p(0usize)",
    "syntax_number": "rel p(12ab)",
    "syntax_number_without_fraction": "rel p(1.)",
    "syntax_open_long_text": 'rel p("""never closed)\nrel q(1)',
    "syntax_character": "rel p('ab')",
    "syntax_implies_chained": "rel p() = a(x) implies b(x) implies c(x)",
    "syntax_parameters_of_atom": "rel p(x) = q<3>[y](x)",
    "syntax_many_digits": "rel p(" + "9" * 2000 + ")",
    "syntax_new_keyword": "rel p(x) = case x",
    "attribute_misspelt": "@hiden rel p(1)",
    "attribute_place": EDGE + "@hidden query edge",
    "attribute_argument": '@file("a.csv", heading=true) type edge(usize, usize)',
    "attribute_argument_type": '@file("a.csv", header="yes") type edge(usize, usize)',
    "attribute_argument_missing": "@demand type f(i32, i32)",
    "attribute_argument_given": "@hidden(true) rel p(1)",
    "attribute_internal": "@magic_set rel p(1)",
    "attribute_scheduler": '@scheduler("dsf") rel p(1)',
    "demand_arity": '@demand("bff") type f(i32, i32)',
    "demand_letters": '@demand("bx") type f(i32, i32)',
    "demand_twice": '@demand("bf") type f(i32, i32)\n@demand("fb") rel f(1, 2)',
    "goal_with_columns": "@goal rel p(1)",
    "goal_twice": "@goal rel p()\n@goal rel q()",
    "tag_of_text": 'rel q = {(1, "x")}\nrel s::p(x) = q(x, s)',
    "tag_of_fact_is_text": 'rel "a"::p(1)',
    "constant_without_value": "const A = 1 / 0",
    "tag_without_value": "rel q = {1, 2}\nrel 0 / 0::p() = q(x)",
    "constant_of_itself": "const A = B + 1, B = A",
    "constant_with_variable": "const LIMIT = 3, A = LIMTI + 1",
    "forall_without_implies": EDGE + "rel all() = forall(x: edge(x, x))",
    "exists_of_a_negation": EDGE + "rel some(y) = edge(y, _), exists(x: not edge(y, x))",
    "aggregate_unbound_argument": EDGE + "rel n(c) = c := argmax[z](x: edge(x, _))",
    "heads_unbound": EDGE + "rel {on(z); off(x)} = edge(x, _)",
    "name_of_a_file": "own.scl",
    "import_missing": 'import "nowhere.scl"',
}

RUNS = {
    "exclusive_sum_in_worlds": ("rel d = {0.9::1; 0.8::2}", {}),
    "facts_unknown_relation": (EDGE + "rel p(a) = edge(a, _)", {"egde": [(0, 1)]}),
    "facts_relation_without_facts": (
        "rel edge_of(a) = edge(a, _)\nrel path(a, b) = pth(a, b)\ntype edge(i32, i32)",
        {},
    ),
    "facts_near_match": (
        "rel path(a, b) = edge(a, b)\nrel twice(a, c) = path(a, b), paths(b, c)\ntype edge(i32, i32)",
        {},
    ),
    "facts_of_dicts": ("rel p(a) = edge(a, _)", {"edge": [{"a": 0, "b": 1}]}),
    "facts_wrong_arity": (EDGE, {"edge": [(0, 1), (1, 2, 3)]}),
    "facts_wrong_type": (EDGE, {"edge": [(0, 1), (1, "two")]}),
    "facts_negative": (EDGE, {"edge": [(0, 1), (1, -2)]}),
    "facts_bool_for_int": (EDGE, {"edge": [(0, True)]}),
    "facts_none": (EDGE, {"edge": [(0, None)]}),
    "facts_array_shape": (EDGE, {"edge": np.zeros((4, 3), dtype=np.int64)}),
    "facts_array_dtype": (EDGE, {"edge": np.zeros((4, 2))}),
    "facts_array_range": ("type p(u8)", {"p": np.array([1, 2, 300])}),
    "facts_array_nan": ("type p(f32)", {"p": np.array([1.0, float("nan")])}),
    "facts_not_a_list": (EDGE, {"edge": 3}),
    "facts_tag": (EDGE, {"edge": [(1.2, (0, 1))]}),
    "facts_no_probabilities": ("type d(i32)", {"d": dv.categorical([1, 2])}),
    "facts_undeclared_text": ("rel p(x + 1) = q(x)", {"q": [("a",)]}),
    "format_places": ('rel p = {"a"}\nrel q($format("{} {}", x)) = p(x)', {}),
    "tag_out_of_range": ("rel 1.5::rain()", {}),
    "constant_rule_tag_out_of_range": ("rel p = {1}\nrel -0.5::q(x) = p(x)", {}),
    "fact_set_tag_out_of_range": ("rel p = {0.5::1,\n  370.0::2}", {}),
    "rule_tag_out_of_range": ("rel p = {0.25, 2.0}\nrel (1.0 / x)::q(x) = p(x)", {}),
    "aggregate_of_too_many_worlds": (
        "type p(f64)\nrel s(n) = n := sum(x: p(x))",
        {"p": dv.independent([3.0**i for i in range(40)], [0.5] * 40)},
    ),
    "aggregate_joins_too_many_worlds": (
        'type p(i32, String)\nrel s(n) = n := string_join<",", all=true>[i](x: p(i, x))',
        {"p": dv.independent([(i, f"{j}") for i in range(30) for j in range(4)], [0.5] * 120)},
    ),
    "aggregate_of_too_many_rows_in_worlds": (
        "type p(i32)\nrel s(n) = n := max(x: p(x))",
        {"p": dv.independent(range(12_000), [0.5] * 12_000)},
    ),
    "aggregate_counts_too_many_worlds": (
        "type p(i32)\nrel s(n) = n := count(x: p(x))",
        {"p": dv.independent(range(3000), [0.5] * 3000)},
    ),
}


UNCERTAIN = ("facts_tag", *(name for name in RUNS if name.endswith(("tag_out_of_range", "_worlds"))))


# What newcomers write from habit: each error names the form, and shows how this language says it.
NEWCOMERS = {
    "comment_hash": "// edges\nrel edge = {(0, 1)}  # one edge",
    "comment_hash_first": "# edges\nrel edge = {(0, 1)}",
    "comment_dashes": "-- edges\nrel edge = {(0, 1)}",
    "word_in_capitals": "rel p(x) = q(x) AND f(x)",
    "negation_in_capitals": "rel p(x) = q(x), NOT f(x)",
    "not_in": "rel p(x) = q(x), x not in 0..1",
    "in_a_set": "rel p(x) = q(x), x in {1, 3}",
    "count_of_all": "rel n(c) = c := count(*)",
    "semicolon_at_the_end": "rel edge = {(0, 1)};\nquery edge;",
    "exclusive_or": "rel q(2.0)\nrel p(x ^ 2) = q(x)",
    "evidence_behind_a_rule": "rel 0.3::rain()\nrel wet() = rain()\nevidence(wet)",
    "comment_percent": "rel edge = {(0, 1)}\n% one edge",
    "comment_percent_behind_a_rule": "rel path(a, b) = edge(a, b) % base",
    "unequal": "rel p(x) = q(x), x <> 3",
    "unequal_of_prolog": "rel p(x) = q(x), x \\= 3",
    "unequal_numbers_of_prolog": "rel p(x) = q(x), x =\\= 3",
    "less_equal_of_prolog": "rel p(x) = q(x), x =< 3",
    "power": "rel p(x ** 2) = q(x)",
    "modulo": "rel p(x) = q(x), x mod 2 == 0",
    "is": "rel p(y) = q(x), y is x + 1",
    "negation_of_c": "rel p(x) = q(x), !f(x, 1)",
    "negation_of_prolog": "rel p(x) = q(x), \\+ f(x, 1)",
    "and_of_c": "rel p(x) = q(x) && f(x)",
    "or_of_c": "rel p(x) =\n    q(x) || f(x)",
    "one_ampersand": "rel p(x) = q(x) & f(x)",
    "one_bar": "rel p(x) = q(x) | f(x)",
    "semicolon": "rel p(x) = q(x); f(x)",
    "sign_of_logic": "rel p(x) = q(x) \u2227 f(x)",
    "quantifier": "rel p(x) = exists y: q(x, y)",
    "where": "rel p(x) = q(x) where x > 1",
    "list": "rel p = [1, 2]",
    "in_a_list": "rel p(x) = q(x), x in [1, 2]",
    "type_int": "type p(x: int, y: i32)",
    "type_float": "type p(float)",
    "type_string": "type name = string",
    "cast_to_int": "rel p(x as int) = q(x)",
    "function_without_dollar": "rel p(abs(x)) = q(x)",
    "function_sqrt": "rel p(y) = q(x), y == sqrt(x + 1)",
    "function_sqrt_with_dollar": "rel p($sqrt(x)) = q(x)",
    "aggregate_in_head": "rel p(count(x)) = q(x)",
    "annotated_disjunction": "0.2::a(x); 0.8::b(x) :- c(x).",
    "annotated_disjunction_of_three": "rel 0.2::a(x); 0.3::b(x); 0.1::d(x) :- c(x), \\+ e(x)",
    "annotated_disjunction_of_pairs": "0.2::a(X); 0.8::b(X) :- c(X, Y).",
    "annotated_facts": "0.3::colour(red); 0.7::colour(blue).",
    "fact_of_problog": "0.3::rain.",
    "evidence": "rel 0.3::rain()\nevidence(rain, true).",
    "query_of_problog": "rel path(0, 1)\nquery(path(0, X)).",
    "query_of_prolog": "rel path(0, 1)\n?- path(0, X).",
    "directive": ":- dynamic edge/2.",
    "fact_of_prolog": "edge(ann, bob).",
    "rule_of_prolog": "path(X, Y) :- edge(X, Y), \\+ blocked(Y).",
    "constant_of_prolog": "rel edge(ann, bob)",
    "constant_of_prolog_in_set": "rel person = {ann, bob}",
    "bool_of_python": "rel p(True)",
    "declaration_of_souffle": ".decl edge(x: number, y: number)",
    "output_of_souffle": ".output path",
}
# Legal, and probably not what was meant.
WARNED = {
    "unbound_demand": "type f(bound n: i32, v: i32)\nrel f(n, n + 1) = n > 0\nrel q(1, 2)\n"
    "rel p(x, v) = q(x, m), f(k, v)",
    "unbound_demand_of_query": '@demand("bf") rel f(n, m) = e(n, m)\nrel e(1, 3)\nquery f(n, 3)',
    "empty_relation": "rel p(x) = u(x), not stuff(x)\nrel u = {1}",
}


def compare(name, report):
    golden_files.compare(f"datalog/{name}", report)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    with pytest.raises(dv.DerivableError) as caught:
        dv.Program(PROGRAMS[name], "demo.scl" if not name.startswith("import") else "<program>")
    report = caught.value.report()
    compare(name, report.replace(str(Path.cwd()), "."))


@pytest.mark.parametrize("name", NEWCOMERS)
def test_forms_of_other_languages(name):
    with pytest.raises(dv.DerivableError) as caught:
        dv.Program(NEWCOMERS[name], "demo.scl")
    compare(f"newcomers/{name}", caught.value.report())


@pytest.mark.parametrize("name", WARNED)
def test_warnings(name):
    with pytest.warns(DerivableWarning) as caught:
        dv.Program(WARNED[name], "demo.scl").run()
    assert caught[0].filename == __file__
    compare(f"warning_{name}", str(caught[0].message))


@pytest.mark.parametrize("name", RUNS)
def test_runs(name):
    text, facts = RUNS[name]
    program = dv.Program(text, "demo.scl")
    with pytest.raises(dv.DerivableError) as caught:
        program.run(facts=facts, provenance="exact" if name in UNCERTAIN else "unit")
    compare(name, caught.value.report())


def test_outputs_are_named():
    db = dv.Program(EDGE + "rel path(a, b) = edge(a, b)\nquery path").run()
    with pytest.raises(dv.DerivableError, match="not an output"):
        db["edge"]
    with pytest.raises(dv.DerivableError, match="did you mean `path`"):
        db["pth"]


def test_unknown_provenance_and_stage():
    program = dv.Program("rel a(1)")
    with pytest.raises(dv.DerivableError, match="there is no provenance 'fuzzy'"):
        program.run(provenance="fuzzy")
    with pytest.raises(dv.DerivableError, match="unknown stage"):
        program.explain("amp")


EXPLAINED = """type edge(src: usize, dst: usize)
rel edge = {(0, 1), (1, 2)}
rel 0.9::seen(0)
rel path(x, y) = edge(x, y) or (path(x, z) and edge(z, y))
rel far(x, y + 1) = path(x, y), not edge(x, y), x != y, y in 0..10
rel degree(x, n) = n := count(y: edge(x, y))
rel closed() = forall(x: edge(x, y) implies path(y, x))
query path(0, x)
query degree
query far
query closed
"""


@pytest.mark.parametrize("stage", ["syntax", "types", "desugar", "optimise", "demand", "strata", "ram"])
def test_explain(stage):
    compare(f"explain_{stage}", dv.Program(EXPLAINED).explain(stage))


WITH_TERMS = """type Expr = Const(i32) | Add(left: Expr, right: Expr)
const ONE = Const(1)
type input(e: Expr), simple(bound e: Expr, s: Expr)
rel input(Add(ONE, Const(2)))
rel simple(e, e) = case e is Const(_)
rel simple(Add(a, b), new Const(x + y)) = simple(a, Const(x)), simple(b, Const(y))
rel answer(s) = input(e), simple(e, s), not case s is Const(0), s != ONE
query answer
"""


@pytest.mark.parametrize("stage", ["syntax", "types", "desugar", "demand", "strata", "ram"])
def test_explain_terms(stage):
    compare(f"explain_terms_{stage}", dv.Program(WITH_TERMS).explain(stage))
