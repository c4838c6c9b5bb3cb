"""Probabilistic static analysis: which exceptions may leave the public functions of Python's standard library?

    python examples/tasks/static_analysis.py [--packages email,http,json]

What a call in Python runs is uncertain, so each way to resolve it is a rule with a confidence, and each alarm has that
of the weakest link of its best chain of calls (`minmaxprob`): certain alarms come first, and chains through guessed
methods last. The facts are read from the sources that ship with Python. Lobster's analyses are of Java programs that
are not here, and no accuracy is published for them. There is no network to compare with either; what is measured is
whether alarms with high confidence are named in the function's own documentation more often than those with low
confidence, which the analysis does not read.
"""

from __future__ import annotations

import ast
import builtins
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import derivable as dv
from experiment import INK, figure, options, report_published, save, timed, timed_again

PROGRAM = """
    type function(f: String, name: String, class: String, module: String)   // class "" for a plain function
    type base(class: String, super: String), raises(f: String, site: String, exception: String)
    type guarded(site: String, handled: String)                 // a handler around the site, by the name it catches
    type calls_name(f: String, site: String, name: String, module: String)     // name(...)
    type calls_self(f: String, site: String, name: String, class: String)      // self.name(...)
    type calls_module(f: String, site: String, name: String, module: String)   // module.name(...), or imported from it
    type calls_method(f: String, site: String, name: String)                   // value.name(...)
    type documented(f: String, exception: String)

    // Classes, their ancestors, and the methods that they have or inherit.
    rel ancestor(c, d) = base(c, d) or (ancestor(c, b) and base(b, d))
    rel kind(e, e) = base(e, _) or raises(_, _, e)
    rel kind(e, d) = ancestor(e, d)
    rel own(c, n, f) = function(f, n, c, _), c != ""
    rel method(c, n, f) = own(c, n, f)
    rel method(c, n, f) = base(c, b), method(b, n, f), not own(c, n, _)
    rel plain(m, n, f) = function(f, n, "", m)
    rel class_in(m, c) = function(_, _, c, m), c != ""

    // What a call may run, and how sure that is.
    rel runs(s, f) = calls_name(_, s, n, m), plain(m, n, f)
    rel runs(s, f) = calls_name(_, s, c, m), class_in(m, c), method(c, "__init__", f)
    rel runs(s, f) = calls_module(_, s, n, m), plain(m, n, f)
    rel runs(s, f) = calls_module(_, s, c, m), class_in(m, c), method(c, "__init__", f)
    rel 0.95::runs(s, f) = calls_self(_, s, n, c), method(c, n, f)
    rel 0.6::runs(s, f) = calls_self(_, s, n, c), ancestor(d, c), own(d, n, f)     // a subclass may override it
    rel defined(n, k) = k := count(f: function(f, n, c, _) and c != "" where n: calls_method(_, _, n))
    rel 0.7::runs(s, f) = calls_method(_, s, n), defined(n, 1), own(_, n, f)       // only one class has such a method
    rel 0.3::runs(s, f) = calls_method(_, s, n), defined(n, k), k > 1, k <= 4, own(_, n, f)

    // Exceptions go up the calls until a handler catches them.
    rel caught(s, e) = guarded(s, h), kind(e, h)
    rel calls(f, s) = calls_name(f, s, _, _) or calls_self(f, s, _, _)
    rel calls(f, s) = calls_module(f, s, _, _) or calls_method(f, s, _)
    rel escapes(f, e) = raises(f, s, e), not caught(s, e)
    rel escapes(f, e) = calls(f, s), runs(s, g), escapes(g, e), not caught(s, e)

    // Alarms are about public functions; those that only say that something is missing are minor.
    rel minor(e) = kind(e, "NotImplementedError") or kind(e, "StopIteration") or kind(e, "AssertionError")
    rel public(f) = function(f, n, _, _), $substring(n, 0, 1) != "_"
    rel alarm(f, e) = escapes(f, e), public(f), not minor(e)
    rel named(f, e) = alarm(f, e), documented(f, e)
    query alarm
    query named
    query runs
    query escapes
"""
PACKAGES = "asyncio,concurrent,email,html,http,importlib,json,logging,multiprocessing,urllib,wsgiref,xml,zipfile"
Facts = dict[str, set[tuple[str, ...]]]
EXCEPTIONS = {
    name for name, value in vars(builtins).items() if isinstance(value, type) and issubclass(value, BaseException)
}


def name_of(node: ast.expr | None) -> str:
    """The last name of `a.b.c`, of a call of it, "" for anything else."""
    if isinstance(node, ast.Call):
        return name_of(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


class Reader:
    """Collects the facts of one module."""

    def __init__(self, module: str, facts: Facts):
        self.module, self.facts = module, facts
        self.modules: dict[str, str] = {}
        self.names: dict[str, tuple[str, str]] = {}

    def read(self, tree: ast.Module) -> None:
        package = self.module.rpartition(".")[0]
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                self.modules |= {alias.asname or alias.name: alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                source = ".".join(part for part in (package if node.level else "", node.module) if part)
                for alias in node.names:
                    self.modules[alias.asname or alias.name] = f"{source}.{alias.name}"
                    self.names[alias.asname or alias.name] = source, alias.name
        self.scope(tree.body, "")

    def scope(self, body: list[ast.stmt], class_name: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                self.facts["base"] |= {(node.name, name_of(base)) for base in node.bases if name_of(base)}
                self.scope(node.body, node.name)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.function(node, class_name)
            elif isinstance(node, ast.If | ast.Try):
                self.scope(node.body, class_name)

    def function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, class_name: str) -> None:
        function = f"{self.module}:{class_name}.{node.name}" if class_name else f"{self.module}:{node.name}"
        self.facts["function"].add((function, node.name, class_name, self.module))
        text = ast.get_docstring(node) or ""
        words = set(text.replace("`", " ").replace(".", " ").replace(",", " ").split())
        self.facts["documented"] |= {(function, word) for word in words if word[:1].isupper()}
        for statement in node.body:
            self.visit(statement, function, class_name, ())

    def visit(self, node: ast.AST, function: str, class_name: str, handled: tuple[str, ...]) -> None:
        if isinstance(node, ast.Try):
            caught = tuple(name for handler in node.handlers for name in self.handled(handler))
            for part in node.body:
                self.visit(part, function, class_name, handled + caught)
            for part in [*node.handlers, *node.orelse, *node.finalbody]:
                self.visit(part, function, class_name, handled)
            return
        site = f"{self.module}:{getattr(node, 'lineno', 0)}:{getattr(node, 'col_offset', 0)}"
        if isinstance(node, ast.Raise) and name_of(node.exc)[:1].isupper():
            self.facts["raises"].add((function, site, name_of(node.exc)))
            self.facts["guarded"] |= {(site, name) for name in handled}
        if isinstance(node, ast.Call):
            self.call(node, function, site, class_name)
            self.facts["guarded"] |= {(site, name) for name in handled}
        for child in ast.iter_child_nodes(node):
            self.visit(child, function, class_name, handled)

    @staticmethod
    def handled(handler: ast.ExceptHandler) -> Iterator[str]:
        """The names that a handler catches for good: one that may raise again catches none."""
        if any(isinstance(node, ast.Raise) and node.exc is None for node in ast.walk(handler)):
            return
        if handler.type is None:
            yield "BaseException"
        elif isinstance(handler.type, ast.Tuple):
            yield from (name_of(each) for each in handler.type.elts)
        else:
            yield name_of(handler.type)

    def call(self, node: ast.Call, function: str, site: str, class_name: str) -> None:
        called = node.func
        if isinstance(called, ast.Name):
            module, name = self.names.get(called.id, (self.module, called.id))
            relation = "calls_name" if module == self.module else "calls_module"
            self.facts[relation].add((function, site, name, module))
        elif isinstance(called, ast.Attribute):
            owner = called.value
            if isinstance(owner, ast.Name) and owner.id in ("self", "cls") and class_name:
                self.facts["calls_self"].add((function, site, called.attr, class_name))
            elif isinstance(owner, ast.Name) and owner.id in self.modules:
                self.facts["calls_module"].add((function, site, called.attr, self.modules[owner.id]))
            else:
                self.facts["calls_method"].add((function, site, called.attr))


def read_sources(packages: list[str], relations: tuple[str, ...]) -> tuple[Facts, int]:
    """(the facts, the number of lines) of packages of the standard library."""
    facts: Facts = {name: set() for name in relations}
    for name in EXCEPTIONS:
        facts["base"] |= {(name, each.__name__) for each in getattr(builtins, name).__bases__}
    library, lines = Path(sysconfig.get_paths()["stdlib"]), 0
    for package in packages:
        for path in sorted((library / package).glob("**/*.py")):
            module = ".".join(path.relative_to(library).with_suffix("").parts).removesuffix(".__init__")
            text = path.read_text("utf-8", "replace")
            lines += text.count("\n")
            Reader(module, facts).read(ast.parse(text))
    return facts, lines


def main(arguments: list[str] | None = None) -> None:
    wanted = options(__doc__ or "", arguments, "static_analysis", packages=PACKAGES, shown=6)
    program = dv.Program(PROGRAM)
    (facts, lines), reading = timed(lambda: read_sources(wanted.packages.split(","), program.inputs))
    database, seconds = timed_again(lambda: program.run(facts, provenance="minmaxprob"))
    alarms = sorted(database["alarm"].items(), key=lambda item: (-item[1], item[0]))
    print(f"{lines:,} lines read in {reading:.2f} s: {sum(map(len, facts.values())):,} facts")
    print(f"{len(alarms):,} alarms in {seconds:.2f} s, {seconds / (seconds + reading):.1%} of the time")
    named = set(database["named"])
    tags = np.array([tag for _, tag in alarms])
    hit = np.array([key in named for key, _ in alarms])
    for low, high in ((0.95, 1.01), (0.6, 0.95), (0, 0.6)):
        rows = (tags >= low) & (tags < high)
        if rows.any():
            print(f"confidence from {low:g}: {rows.sum():6,} alarms, {hit[rows].mean():.1%} named in the documentation")
    report_published(
        "speedups over Scallop (Lobster, figure 11), no accuracy",
        "Python's standard library instead of Java programs; without a network, the baseline is low confidence",
    )
    for (function, exception), tag in alarms[: wanted.shown]:
        print(f"  {tag:.2f} {function} may raise {exception}")

    made, (axes,) = figure(1)
    axes.hist(tags, bins=np.linspace(0, 1, 21), color=INK)
    axes.set_xlabel("confidence")
    axes.set_ylabel("alarms")
    save(made, wanted.picture)


if __name__ == "__main__":
    main()
