"""Programs of Soufflé's and ProbLog's as texts in this library's language, with the comments of the originals."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from derivable.core.diagnostics import Origin, Span, UnsupportedError
from derivable.core.roots import Roots
from derivable.datalog.problog.reader import read_terms
from derivable.datalog.problog.translate import Include, translated
from derivable.datalog.scalars.nodes import walk
from derivable.datalog.souffle import nodes as n
from derivable.datalog.souffle.load import Loaded, load
from derivable.datalog.souffle.read import Options
from derivable.datalog.syntax import nodes as s
from derivable.datalog.syntax.layout import Page, laid_out
from derivable.datalog.syntax.legal_names import Renaming

_SOUFFLE = re.compile(r'"(?:\\.|[^"\\])*"|(?P<comment>//[^\n]*|/\*.*?\*/)', re.DOTALL)
_PROBLOG = re.compile(
    r"""0'(?:\\.|''|.)|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|(?P<comment>%[^\n]*|/\*.*?\*/)""", re.DOTALL
)


def souffle_text(text: str, source: str, macros: Mapping[str, str] | None, word: int, roots: Roots) -> str:
    """The text of a program of Soufflé's in this library's language; its functors are functions that Python gives.

    Raises as `Program.from_souffle`, and UnsupportedError for a directive that the text cannot say, with the line.
    """
    loaded = load(text, source, macros, None, word, roots, is_text=True)
    items = [*_functors(loaded), *_with_files(loaded)]
    # A brace ends a component, and directives that leave no trace are those of the preprocessor and of components.
    between = re.compile(r"[}#]|\.[a-z]")

    def starts(origin: Origin | None) -> Iterable[Span]:
        return (
            span for span in loaded.statements if (span.origin and span.origin.source) == (origin and origin.source)
        )

    return _text(items, text, _SOUFFLE, between, starts, is_lowered=False)


def problog_text(text: str, source: str, include: Include | None) -> str:
    """The text of a program of ProbLog's in this library's language. Raises as `Program.from_problog`."""
    syntax, _ = translated(text, source, include)

    def starts(origin: Origin | None) -> Iterable[Span]:
        terms = read_terms(text, source) if origin is None else read_terms(origin.text, origin.source, True)
        return (term.span for term in terms)

    return _text(syntax.items, text, _PROBLOG, re.compile(r"(?!)"), starts, is_lowered=True)


def _text(
    items: Iterable[s.Item],
    text: str,
    comment: re.Pattern[str],
    between: re.Pattern[str],
    starts: Callable[[Origin | None], Iterable[Span]],
    is_lowered: bool,
) -> str:
    renamed = Renaming(map(_as_text, items), is_lowered).renamed()
    origins = {item.span.origin.source: item.span.origin for item in renamed if item.span.origin is not None}
    for item in renamed:
        for fact in item.facts if isinstance(item, s.FactSet) else ():
            if fact.span.origin is not None:
                origins[fact.span.origin.source] = fact.span.origin
    pages, page_of = [], {}
    # What a program takes in stands before it.
    for origin in (*origins.values(), None):
        page = Page(text if origin is None else origin.text, comment, (), between)
        page.starts = sorted({page.line_starts.start(span) for span in starts(origin)})
        page_of[None if origin is None else origin.source] = len(pages)
        pages.append(page)
    return laid_out(renamed, pages, page_of)


def _as_text(item: s.Item) -> s.Item:
    """A data type of one variant with another one, which nothing has: the language has none of one. A table as a set,
    whose facts have lines."""
    if isinstance(item, s.FactTable):
        rows = (tuple(map(s.Constant, row, item.kinds)) for row in zip(*item.columns))
        tags = [None] * len(item.columns[0]) if item.tags is None else [s.Constant(tag, "float") for tag in item.tags]
        facts = tuple(s.Fact(row, tag, span=item.span) for row, tag in zip(rows, tags))
        return s.FactSet(item.relation, facts, span=item.span)
    if isinstance(item, s.DataType) and len(item.variants) == 1:
        [variant] = item.variants
        return replace(item, variants=(variant, s.Variant(f"no_{variant.name}", (), span=variant.span)))
    return item


# Soufflé's directives


def _functors(loaded: Loaded) -> list[s.Item]:
    """Functors as functions that Python has."""
    used = {node.name for item in loaded.syntax.items for node in walk(item) if isinstance(node, s.Call)}
    functors: list[s.Item] = []
    for name, declared in loaded.types.functors.items():
        if name in used:
            types = [loaded.type_name(t, declared.span) for t in (*declared.parameters, declared.result)]
            columns = tuple(s.Column(t) for t in types[:-1])
            functors.append(s.FunctionType(name, columns, types[-1], span=declared.span))
    return functors


def _with_files(loaded: Loaded) -> list[s.Item]:
    """The items, with files where `.input` and `.output` name them, and relations of sizes for `.printsize`."""
    files: dict[str, s.Attribute] = {}
    queries: list[s.Item] = []
    for directive in loaded.directives:
        name, span = directive.relation, directive.span
        if directive.kind == "printsize":
            queries += _size(loaded, name, span)
        elif directive.kind in ("input", "output"):
            attribute = _file(loaded, directive)
            if directive.kind == "output":
                queries.append(s.Query(name, attributes=() if attribute is None else (attribute,), span=span))
            elif (
                attribute is not None and files.setdefault(loaded.facts_of.get(name, name), attribute) is not attribute
            ):
                raise _refused(loaded, directive, f"`{name}` has several files")
    items: list[s.Item] = []
    for item in loaded.syntax.items:
        if isinstance(item, s.RelationType) and item.name in files:
            items.append(replace(item, attributes=(files[item.name],)))
        elif not (queries and isinstance(item, s.Query)):
            items.append(item)
    return [*items, *queries]


def _size(loaded: Loaded, name: str, span: Span) -> list[s.Item]:
    """A relation of the number of rows, and its query."""
    columns = tuple(f"x{i}" for i in range(len(loaded.types.columns(name, span))))
    body: Any = s.Atom(name, tuple(map(s.Variable, columns)))
    if not columns:
        columns = ("x",)
        body = s.Conjunction((body, s.Binary("==", s.Variable("x"), s.Constant(0, "integer"))))
    size, count = f"{name}'size", s.Variable("n")
    rule = s.Rule((s.Atom(size, (count,)),), s.Aggregate("count", columns, body, (count,)), span=span)
    return [rule, s.Query(size, span=span)]


def _file(loaded: Loaded, directive: n.Directive) -> s.Attribute | None:
    """`@file(...)` of a directive; None for the file that a folder of facts or of results has by its name."""
    options = Options(directive, loaded)
    if options.io == "stdout":
        return None
    if options.get("columns"):
        raise _refused(loaded, directive, "`@file` has no `columns`")
    if options.io != "file":
        raise _refused(loaded, directive, f"`@file` has no IO={options.io}")
    is_selected = directive.kind == "input" and directive.relation in loaded.facts_of
    said = {"filename", "name", "delimiter", "headers", "compress", "rfc4180"}
    if not is_selected and not said & options.parameters.keys():
        return None
    if len(options.delimiter) != 1:
        raise _refused(loaded, directive, f"the delimiter {options.delimiter!r} is not one sign")
    ending = ".facts" if directive.kind == "input" else ".csv"
    path = options.get("filename") or f"{options.get('name') or options.relation}{ending}"
    arguments: list[tuple[str | None, Any]] = [(None, path), ("header", options.has_header)]
    arguments += [("delimiter", options.delimiter), ("quotes", options.is_rfc)]
    return s.Attribute("file", tuple(arguments), span=directive.span)


def _refused(loaded: Loaded, directive: n.Directive, why: str) -> UnsupportedError:
    syntax = loaded.syntax
    hint = f"write `.{directive.kind} {directive.relation}`, or convert the file"
    origin = directive.span.origin
    source, text = (syntax.source, syntax.text) if origin is None else (origin.source, origin.text)
    return UnsupportedError(why, hint=hint, source=source, text=text, span=directive.span)
