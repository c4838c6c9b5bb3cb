"""Files of other languages, by their names and first lines, with what to do with them here."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

_PROLOG = (".pl", ".pro", ".problog")
NETWORKS = (".bif", ".xbif", ".xmlbif", ".uai")
_RULES = "the page `Coming from another library` shows the same program here: `rel path(x, z) = path(x, y), edge(y, z)`"
_NETWORKS = "`derivable run FILE` has the posteriors of a .bif, .xmlbif or .uai, and `circuit.load_network` its circuit"
_CIRCUITS = (
    "known circuits are .sdd, .nnf, .cnf and .dvc; a PSDD's structure is an SDD, which its program saves as .sdd"
)


@dataclass(frozen=True)
class Language:
    """A language that is not derivable's, whose files are read as the hint says, or not at all.

    title    what a file in it is
    endings  of names of such files
    form     what its first lines look like, as a regular expression
    hint     what to do instead
    """

    title: str
    endings: tuple[str, ...]
    form: str
    hint: str


LANGUAGES = (
    Language(
        "a program of Soufflé",
        (".dl",),
        r"(?m)^\s*\.(decl|type|input|output|include|pragma)\b",
        "`derivable run FILE.dl` runs it, and `dv.Program.from_souffle(text)` in Python",
    ),
    Language(
        "a program of Prolog or ProbLog",
        _PROLOG,
        r"(?m)^\s*(%(?!%)|:-|([\d.]+\s*::\s*)?[a-z]\w*(\([^()\n]*\))?\s*(:-|\.\s*$))",
        "`derivable run FILE.pl` and `Program.from_problog(text)` run it",
    ),
    Language("an answer set program", (".lp",), r"(?m)^\s*#(show|const|program)\b", _RULES),
    Language("a Bayesian network in BIF", (".bif",), r"(?m)^\s*(network|variable)\s+\S+\s*\{", _NETWORKS),
    Language("a graphical model in UAI's format", (".uai",), r"\A\s*(MARKOV|BAYES)\s", _NETWORKS),
    Language("a PSDD", (".psdd",), r"(?m)^psdd\s+\d+\s*$", _CIRCUITS),
    Language(
        "a vtree",
        (".vtree",),
        r"(?m)^vtree\s+\d+\s*$",
        "it goes beside its SDD, or into load(path, vtree=...) or compile(clauses, vtree=...)",
    ),
    Language("a matrix of the Matrix Market", (".mtx",), r"\A%%MatrixMarket", "sparse tensor programs take it"),
    Language(
        "a formula of weighted MaxSAT",
        (".wcnf",),
        r"(?m)^p wcnf\b",
        "write the weights of a CNF as `c p weight LITERAL WEIGHT 0`",
    ),
    Language("a quantified formula", (".qdimacs",), r"(?m)^[ae]( \d+)+ 0\s*$", "give a CNF without quantifiers"),
    Language("a Bayesian network in XML", (".xbif", ".xmlbif", ".xdsl"), r"<(BIF|bif)\b|<smile\b", _NETWORKS),
    Language("a formula in disjunctive normal form", (".dnf",), r"(?m)^p dnf\b", "give the CNF of its negation"),
)
# What this library reads, but not as a program.
CIRCUITS = (
    Language(
        "a CNF formula",
        (".cnf", ".dimacs"),
        r"(?m)^p cnf\b",
        "`derivable count` counts its models, and `derivable compile` compiles it",
    ),
    Language(
        "a circuit",
        (".sdd", ".nnf", ".dvc"),
        r"(?m)^(sdd|nnf) \d+|\A\s*[oat] \d+ 0\s*$",
        "`derivable count` counts its models",
    ),
)
# How much of a file is looked at.
_BEGINNING = 4096

# How items of this library's own language begin, and no clause of Prolog.
_ITEM = re.compile(r"(?m)^\s*(rel|relation|type|query|const|import)\s+[\w\"{]")


def is_network(name: str | os.PathLike) -> bool:
    """Whether a file, gzipped or not, is a Bayesian or Markov network, by its name."""
    return Path(str(name).lower().removesuffix(".gz")).suffix in NETWORKS


def is_problog(name: str | os.PathLike, text: str) -> bool:
    """Whether a file is a program of ProbLog: its name says so, and it has no items of this library's language."""
    return Path(name).suffix.lower() in _PROLOG and not _ITEM.search(text)


def other_language(name: str, text: str, *, is_program: bool = False) -> Language | None:
    """The language of a file that is not read here; None if neither its name nor its beginning says so.

    is_program  whether a program is wanted: then a name alone says nothing, and circuits are another language
    """
    ending = Path(name.lower().removesuffix(".gz")).suffix
    beginning = text[:_BEGINNING]
    known = (*LANGUAGES, *CIRCUITS) if is_program else LANGUAGES
    named = [language for language in known if ending in language.endings]
    formed = [language for language in known if re.search(language.form, beginning)]
    return next(iter([*(named if formed or not is_program else []), *formed]), None)
