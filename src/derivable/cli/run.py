"""`derivable run FILE.scl`: run a logic program and print its output relations."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from derivable.cli.items import evidence_text
from derivable.cli.report import plain, write_table
from derivable.cli.user_file import (
    PYTHON,
    file_options,
    macros_of,
    provenance_option,
    roots_of,
    souffle_options,
    without_souffle_options,
)
from derivable.core.terminal import visible

TABLE_ROWS = 50
# Values that are written at once.
PART = 1 << 14


class _Width(click.ParamType):
    """A number in (0, 1]. An option whose value may be left out takes the FILE behind it for that."""

    name = "width"

    def convert(self, value: Any, param: Any, ctx: Any) -> float:
        try:
            width = float(value)
        except ValueError:
            width = 0.0
        if not 0.0 < width <= 1.0:
            self.fail(f"{value!r} is no width between 0 and 1; before FILE write --approximate=0.01", param, ctx)
        return width


@click.command("run")
@click.argument("file", type=click.Path())
@provenance_option(None, "  [default: exact if facts have probabilities, else unit]")
@PYTHON
@click.option(
    "-k",
    type=click.IntRange(min=1),
    help="Proofs kept by topkproofs [default: 3], worlds of --most-probable [1], most probable proofs of --why.",
)
@click.option("--most-probable", is_flag=True, help="Print the most probable worlds, given the evidence.")
@click.option(
    "--over", multiple=True, metavar="TUPLE", help="Let these worlds say just whether TUPLE holds; may repeat."
)
@click.option("--samples", type=click.IntRange(min=0), metavar="N", help="Draw N worlds, given the evidence.")
@click.option("--why", multiple=True, metavar="TUPLE", help="Print a proof of TUPLE, 'path(0, 1)'; may repeat.")
@click.option("--why-not", multiple=True, metavar="TUPLE", help="Print which atoms of its rules fail; may repeat.")
@click.option("--depth", type=click.IntRange(min=1), default=1, help="Rules that --why-not goes down.  [default: 1]")
@click.option("-q", "--query", "queries", multiple=True, metavar="RELATION", help="Show only this; may be repeated.")
@click.option(
    "-e",
    "--evidence",
    multiple=True,
    metavar="ITEM",
    help="What was observed, such as 'not calls(\"Ada\")', in a .pl '\\+ calls(ada)'.",
)
@click.option(
    "--approximate",
    is_flag=False,
    flag_value=0.01,
    type=_Width(),
    metavar="[WIDTH]",
    help="Bounds on probabilities, at most WIDTH apart [0.01] if there is the time: --time-limit, or 10 s. Behind FILE,"
    " or as --approximate=0.01.",
)
@click.option(
    "-F", "--facts", type=click.Path(), metavar="DIR", help="Facts from DIR/RELATION.csv, .tsv, .facts, .parquet, ..."
)
@click.option(
    "--iteration-limit",
    "--iter-limit",
    type=click.IntRange(min=1),
    help="Rounds of each recursion at most; what there is then is the result.",
)
@click.option("--time-limit", type=float, metavar="SECONDS", help="Give up after this long.")
@click.option("--round-limit", type=click.IntRange(min=1), help="Give up after this number of rounds of a recursion.")
@click.option("--tuple-limit", type=click.IntRange(min=1), help="Give up at more tuples in all.")
@click.option("--memory-limit", metavar="SIZE", help='Give up at more memory, such as "2 GB".')
@click.option("--compatible", is_flag=True, help="Group variables of aggregates are those of heads, as in Scallop.")
@click.option("--stop-at-goal", is_flag=True, help="Stop when the relation marked @goal has its tuple.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of samples that are drawn.")
@click.option("--engine", type=click.Choice(["spark", "sail"]), help="Run on Spark, or on Sail in this process.")
@click.option("--remote", metavar="sc://HOST:PORT", help="The server of Spark Connect of --engine spark.")
@click.option("--partitions", type=click.IntRange(1, 2**31 - 1), help="Partitions of an engine.")
@click.option(
    "--spill",
    metavar="DIR",
    help="Run partition after partition within --memory-limit, and write relations to a folder in DIR; a run that was"
    " ended goes on. With --engine: where it writes rounds, a folder that all its machines have.",
)
@click.option("--progress/--no-progress", default=None, help="Show how far the run is.  [default: on a terminal]")
@click.option(
    "-o",
    "-D",
    "--output",
    metavar="DIR|DIR/*.parquet",
    help="Write each relation to a file in DIR (.csv by default) instead of stdout.",
)
@souffle_options
@file_options
@click.option("--json", "as_json", is_flag=True, help="One JSON document with the tuples and tags of each relation.")
def run_command(
    file: str,
    queries: tuple[str, ...],
    evidence: tuple[str, ...],
    facts: str | None,
    compatible: bool,
    output: str | None,
    macros: tuple[str, ...],
    word: str,
    roots: tuple[str, ...],
    allow_files: bool,
    as_json: bool,
    most_probable: bool,
    over: tuple[str, ...],
    samples: int | None,
    why: tuple[str, ...],
    why_not: tuple[str, ...],
    depth: int,
    engine: str | None,
    remote: str | None,
    **settings: Any,
) -> None:
    """Run the logic program in FILE (- for stdin) and print its output relations.

    A program with `query` items prints those relations, another one all of them. In a pipe, one fact a line:
    `path(0, 1)`, or `0.9::path(0, 1)` if the provenance has tags. With --most-probable or --samples, worlds instead;
    with --why or --why-not, proofs.

    A FILE that ends in .dl is a program of Soufflé's: -F is the folder of its `.input`, and -D that of its `.output`,
    whose files are as Soufflé writes them.

    FILE.pl, .pro or .problog is a program of ProbLog: facts are printed as it writes them, `0::path(a, b)` for an atom
    that is queried and never holds.

    FILE.bif, .xmlbif or .uai is a network: the probability of each value of each variable is printed, given what -e
    says, as in -e 'rain=yes'; -q names variables.

    With --engine the program runs there: DIR/RELATION.parquet of --facts is read by the engine, and --output
    'DIR/*.parquet' is written by it. With --spill, and without an engine, such facts and files may be more than the
    memory holds.
    """
    from derivable.cli.engine import collected, engine_of, write_frames, write_spilled

    wants_worlds, wants_proofs = most_probable or samples is not None, bool(why or why_not)
    settings["engine"] = engine_of(engine, remote)
    on_engine = settings["engine"] is not None
    in_partitions = on_engine or settings["spill"] is not None
    if settings["partitions"] is not None and not on_engine:
        raise click.UsageError("--partitions goes with --engine.")
    if in_partitions and (wants_worlds or wants_proofs):
        option = "--engine" if on_engine else "--spill"
        raise click.UsageError(f"{option} excludes --most-probable, --samples, --why and --why-not.")
    if in_partitions and not on_engine and output is not None and not output.endswith("*.parquet"):
        raise click.UsageError("--spill writes --output 'DIR/*.parquet'.")
    if (most_probable and samples is not None) or (over and not most_probable):
        raise click.UsageError("--most-probable and --samples exclude each other, and --over goes with the first.")
    if settings["approximate"] is None:
        del settings["approximate"]
    elif wants_worlds or output is not None:
        raise click.UsageError("--approximate excludes --most-probable, --samples and --output.")
    if wants_proofs and (wants_worlds or output is not None):
        raise click.UsageError("--why and --why-not exclude --most-probable, --samples and --output.")
    proofs = None
    if why and settings["provenance"] in (None, "exact", "unit"):
        proofs, settings["k"] = settings["k"], None
    if file.lower().endswith(".dl"):
        if wants_worlds:
            raise click.UsageError("--most-probable and --samples are for programs with probabilities, not for a .dl.")
        program, database, names = _run_souffle(
            *(file, queries, evidence, facts, output, macros, int(word), roots_of(file, roots, allow_files)),
            *(as_json or wants_proofs, settings),
        )
        if wants_proofs:
            from derivable.cli.why import write_reasons

            write_reasons(program, database, why, why_not, proofs, depth, as_json, settings)
        else:
            _show(database, names, as_json)
        return
    from derivable.core.other_files import is_network

    if is_network(file):
        from derivable.cli.networks import write_posteriors

        _allow_only("a network", "file", "evidence", "queries", "as_json")
        write_posteriors(file, evidence, queries, as_json)
        return
    without_souffle_options(macros, word)
    program, shown = _program(file, queries, evidence, compatible, roots_of(file, roots, allow_files))
    # Before the run, which may take long.
    files = _files_of_queries(program, file, output, allow_files)
    limits = {name: settings[name] for name in ("time_limit", "memory_limit", "tuple_limit")}
    inputs = facts_of(program, facts, limits, settings["progress"], in_partitions)
    if wants_worlds:
        from derivable.cli.worlds import write_worlds

        write_worlds(program, inputs, settings, samples, over, as_json)
        return
    # The other options have the names that they have there.
    database: Any = program.run(facts=inputs, **settings)
    if wants_proofs:
        from derivable.cli.why import write_reasons

        write_reasons(program, database, why, why_not, proofs, depth, as_json, settings)
        return
    names = [name for name in database if shown is None or name in shown]
    shown_as = getattr(program, "shown", None)
    if in_partitions:
        if output is not None and output.endswith("*.parquet"):
            write = write_frames if on_engine else write_spilled
            write(database, names, _folder_of(output), _as_file_name)
            # Those that queries name are files of this machine.
            _write_files(collected(database, list(files)), files, [], output if files else None)
            return
        if not (on_engine or files or as_json):
            for name in names:
                _write_spilled(name, database[name])
            return
        database = collected(database, names)
    if shown_as is None and not in_partitions:
        # Those of ProbLog have a warning for each.
        _note_missing(program, inputs, [name for name in names if not len(database[name])])
    _write_files(database, files, names, output)
    if output is None:
        _show(database, names, as_json, shown_as)


def _show(database: Any, names: list[str], as_json: bool, shown_as: Any = None) -> None:
    """Print relations, as a program of ProbLog writes its facts if there is one."""
    if as_json:
        _write_documents(database, names)
        return
    for name in names:
        _write(name, database[name], shown_as, _bounds(database, name))


def _bounds(database: Any, name: str) -> Iterator[str] | None:
    """Between what the probability of each tuple lies, in order, of an approximate run; nothing for an exact one."""
    if database.evidence_bounds is None:
        return None
    return (
        ""
        if interval.width == 0.0
        else f"{interval.lower:.6g} to {interval.upper:.6g}"
        + (f", with confidence {interval.confidence:g}" if interval.confidence < 1.0 else "")
        for interval in (database.bounds(name, row) for row in database[name])
    )


def _run_souffle(
    file: str,
    queries: tuple[str, ...],
    evidence: tuple[str, ...],
    facts: str | None,
    output: str | None,
    macros: tuple[str, ...],
    word: int,
    roots: tuple[str, ...] | None,
    as_json: bool,
    settings: dict[str, Any],
) -> tuple[Any, Any, list[str]]:
    """A program of Soufflé's, a run of it, and the relations to show."""
    from derivable.core.diagnostics import UnsupportedError
    from derivable.datalog.api.program import Program

    if evidence:
        raise UnsupportedError("Soufflé's programs take no evidence", hint="write the program with `rel`, in a .scl")
    inside = None if roots is None else (*roots, *([] if facts is None else [facts]))
    text, source = text_of(file)
    program = Program.from_souffle(text, source, macros=macros_of(macros), word=word, roots=inside)
    database: Any = program.run(facts=program.read(facts or "."), **settings)
    if settings["engine"] is not None or settings["spill"] is not None:
        from derivable.cli.engine import collected

        database = collected(database, list(database))
    if output == "-":
        program.write(database, None)
    elif output is not None and "*" not in output:
        for path in program.write(database, output):
            click.echo(path, err=True)
    elif output is not None:
        _write_files(database, {}, list(database), output)
    elif not as_json:
        program.print_sizes(database)
    shown = queries or [d.relation for d in program.loaded.directives if d.kind == "output"] or list(database)
    return program, database, [] if output is not None else list(dict.fromkeys(shown))


def facts_of(
    program: Any, folder: str | None, limits: dict[str, Any], progress: bool | None, in_partitions: bool = False
) -> dict[str, Any]:
    """The facts of the files of a folder, none without one; of a run in partitions those of Parquet as paths."""
    if folder is None:
        return {}
    from derivable.datalog.facts.fact_folders import facts_from
    from derivable.datalog.run.limits import Watch, checked_limits, watched

    relations = {name: r for name, r in program.lowered().relations.items() if not name.startswith("#")}
    there: dict[str, Any] = {}
    if in_partitions:
        from derivable.cli.engine import engine_facts

        there = dict(engine_facts(folder, relations))
        relations = {name: relation for name, relation in relations.items() if name not in there}
        if there and not any(any(Path(folder).glob(f"{name}.*")) for name in relations):
            return there
    watch = Watch(checked_limits(**limits), progress)
    return {**watched(watch, lambda: facts_from(folder, relations, watch.read)), **there}


def _note_missing(program: Any, given: dict[str, Any], empty: list[str]) -> None:
    """Say on standard error that an output may be empty because relations have no facts."""
    missing = [name for name in program.inputs if name not in given or not len(given[name])]
    if not empty or not missing:
        return
    shown = ", ".join(f"`{name}`" for name in missing)
    click.echo(
        f"note: there are no facts for {shown}\n"
        f"help: write them in the program (`rel {missing[0]} = {{...}}`), name a file there (`@file`), or give a"
        f" folder: --facts DIR reads DIR/{missing[0]}.csv",
        err=True,
    )


def _program(
    file: str, queries: tuple[str, ...], evidence: tuple[str, ...], compatible: bool, roots: tuple[str, ...] | None
) -> tuple[Any, set[str] | None]:
    """The program with queries and evidence added, and the names of the relations to show, None for all outputs."""
    from derivable.core.other_files import is_problog
    from derivable.datalog.api.program import Program

    text, source = text_of(file)
    options: dict[str, Any] = {"compatible": compatible, "roots": roots}
    if is_problog(source, text):
        return _program_of_problog(text, source, queries, evidence, roots)
    text += evidence_text(evidence, "--evidence", is_problog=False)
    if not queries:
        return Program(text, source, **options), None
    before = set(Program(text, source, roots=roots).lowered().outputs)
    text += "".join(f"\nquery {query}" for query in queries) + "\n"
    program = Program(text, source, **options)
    added = set(program.lowered().outputs) - before
    return program, added | set(queries)


def _program_of_problog(
    text: str, source: str, queries: tuple[str, ...], evidence: tuple[str, ...], roots: tuple[str, ...] | None
) -> tuple[Any, set[str] | None]:
    """As `_program`; a query is an atom, `path(a, X)`, or the name of relations of whatever arity."""
    from derivable.datalog.api.program import Program
    from derivable.datalog.problog.library import defined_by
    from derivable.datalog.problog.reader import read_terms
    from derivable.datalog.problog.terms import canonical

    text += evidence_text(evidence, "--evidence", is_problog=True)
    if not queries:
        return Program.from_problog(text, source, roots=roots), None
    keys = {key for term in read_terms(text, source) for key in defined_by(term)}
    atoms = []
    for query in queries:
        arities = sorted(arity for name, arity in keys if name == query)
        atoms += [f"{query}({', '.join('_' * arity)})" if arity else query for arity in arities] or [query]
    text += "".join(f"\nquery({atom})." for atom in atoms) + "\n"
    program = Program.from_problog(text, source, roots=roots)
    forms = [canonical(term) for atom in atoms for term in read_terms(f"{atom}.", "--query")]
    return program, {program.shown.outputs[form] for form in forms}


def read_program(file: str, roots: tuple[str, ...] | None) -> Any:
    """The program of a file, - for standard input, in either language of those with probabilities."""
    from derivable.core.other_files import is_problog
    from derivable.datalog.api.program import Program

    text, source = text_of(file)
    return (
        Program.from_problog(text, source, roots=roots)
        if is_problog(source, text)
        else Program(text, source, roots=roots)
    )


def text_of(file: str) -> tuple[str, str]:
    """The text of a program, and what errors call it."""
    from derivable.core.files import read_bytes, utf8_text

    if file == "-":
        return sys.stdin.read(), "<stdin>"
    return utf8_text(read_bytes(file), file), os.fspath(Path(file))


def _files_of_queries(program: Any, file: str, output: str | None, allow_files: bool) -> dict[str, Any]:
    """Output -> the path and form of the file that its query names with `@file`, which lies in the folder of --output.

    Without --output it is relative to the program's folder. Raises DomainError for a file that may not be written.
    """
    if not program.files:
        return {}
    from derivable.core.diagnostics import DomainError
    from derivable.core.files import checked_path, followed
    from derivable.core.roots import Roots
    from derivable.datalog.facts.fact_files import declared

    folder = None if output is None else _folder_of(output)
    roots = Roots.of(None if allow_files else () if folder is None else (folder,))
    files = {}
    for name, attribute in program.files.items():
        path, form = declared(attribute)
        place = (Path(file).parent if folder is None else folder) / checked_path(path)
        other = next((other for other, (taken, _) in files.items() if followed(taken) == followed(place)), None)
        if other is not None:
            raise DomainError(
                f"the queries `{other}` and `{name}` are both written to {path}",
                hint="name another file",
                source=program.source,
                text=program.text,
                span=attribute.span,
            )
        if not roots.holds(place):
            message, hint = roots.refusal(place, "write")
            raise DomainError(message, hint=hint, source=program.source, text=program.text, span=attribute.span)
        files[name] = place, form
    return files


def _folder_of(output: str) -> Path:
    """The folder of DIR or DIR/*.parquet."""
    return Path(output.partition("*")[0] or ".")


def _as_file_name(name: str) -> str:
    """The name of a relation, or the text of a query, as that of a file: `/` and control characters are `%2F`, ..."""
    return re.sub(r"[/%\x00-\x1f\x7f]", lambda found: f"%{ord(found[0]):02X}", name)


def _write_files(database: Any, files: dict[str, Any], names: list[str], output: str | None) -> None:
    """The files that the program's queries name with `@file`, and those that --output asks for."""
    if not files and output is None:
        return
    from derivable.core.files import followed
    from derivable.datalog.api.fact_output import write_facts
    from derivable.datalog.facts.file_forms import FileForm

    if output is not None:
        _folder_of(output).mkdir(parents=True, exist_ok=True)
    for name, (place, form) in files.items():
        write_facts(database[name], place, form)
    if output is None:
        return
    folder, star, ending = output.partition("*")
    ending = ending if star else ".csv"
    # A file that its query names has the form that it says.
    written = {followed(place) for place, _ in files.values()}
    for name in names:
        path = Path(folder) / f"{_as_file_name(name)}{ending}"
        if followed(path) not in written:
            # Soufflé's files have no header.
            write_facts(database[name], path, FileForm(header=True if ending.lower() == ".csv" else None))
        click.echo(f"{path}: {len(database[name]):,} facts", err=True)


def _allow_only(what: str, *names: str) -> None:
    """Raise UsageError for an option of the command line that says nothing of such a file."""
    context = click.get_current_context()
    for one in context.command.params:
        if one.name not in names and context.get_parameter_source(str(one.name)) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{' / '.join([*one.opts, *one.secondary_opts])} is not for {what}.")


def _write_documents(database: Any, names: list[str]) -> None:
    """One JSON document, part by part: {relation: {"tuples": [...], "tags": [...]}}; "tags" only if there are some, and
    "bounds", [lower, upper, confidence] of each, of an approximate run."""
    write = sys.stdout.write
    write("{")
    for place, name in enumerate(names):
        view = database[name]
        write(f'{"," if place else ""}\n  {json.dumps(name, ensure_ascii=False)}: {{\n    "tuples": [')
        _write_list(map(list, view))
        if view.tags is not None:
            write('],\n    "tags": [')
            _write_list(view.tag_list())
        if database.evidence_bounds is not None:
            write('],\n    "bounds": [')
            intervals = (database.bounds(name, row) for row in view)
            _write_list([interval.lower, interval.upper, interval.confidence] for interval in intervals)
        write("]\n  }")
    write("\n}\n")


def _write_list(values: Iterable[Any]) -> None:
    separator = ""
    for part in _parts(values):
        text = json.dumps(part, ensure_ascii=False, default=plain)
        sys.stdout.write(separator + text[1:-1])
        separator = ", "


def _parts(values: Iterable[Any]) -> Iterator[list[Any]]:
    rest = iter(values)
    while part := list(islice(rest, PART)):
        yield part


def _write(name: str, view: Any, shown_as: Any = None, bounds: Iterator[str] | None = None) -> None:
    from derivable.datalog.api.relation_view import tag_text

    if shown_as is not None and not len(view) and name in shown_as.absent:
        click.echo(f"0::{visible(shown_as.absent[name])}")
        return
    relation = name.partition("(")[0]  # the facts of `query path(0, x)` are facts of path
    if sys.stdout.isatty():
        arity = len(view.columns)
        more = [] if bounds is None else ["bounds"]
        columns = [*([] if view.tags is None else ["tag"]), *more, *(str(place) for place in range(arity))]
        if arity == 0 and view.tags is None:
            click.echo(f"{visible(name)}(): {'true' if len(view) else 'false'}")
            return
        texts = next(view.shown_rows(TABLE_ROWS), [])
        tags = [[] for _ in texts] if view.tags is None else [[tag_text(t)] for t in view.tag_list(TABLE_ROWS)]
        if bounds is not None:
            tags = [[*tag, text] for tag, text in zip(tags, bounds)]
        shown = [[*tag, *row] for tag, row in zip(tags, texts)]
        write_table(f"{name}  ({len(view):,})", columns, shown, len(view))
        return
    rest = iter(()) if view.tags is None else iter(view.tag_list())
    for facts in _facts(name, relation, view, shown_as):
        if view.tags is not None:
            facts = [f"{tag_text(tag, 9)}::{fact}" for tag, fact in zip(islice(rest, len(facts)), facts)]
        if bounds is not None:
            comment = "  // " if shown_as is None else "  % "
            facts = [fact + (comment + text if text else "") for fact, text in zip(facts, islice(bounds, len(facts)))]
        facts.append("")
        sys.stdout.write("\n".join(facts))


def _write_spilled(name: str, relation: Any) -> None:
    """Print a relation on disk, a batch of rows at a time; on a terminal its first ones."""
    views = relation.views()
    if not sys.stdout.isatty():
        for view in views:
            _write(name, view)
        return
    first = next(views, relation.collected) if len(relation) else relation.collected
    _write(name, first)
    if len(relation) > len(first):
        click.echo(f"{len(relation):,} in all, in {relation.folder}")


def _facts(name: str, relation: str, view: Any, shown_as: Any) -> Iterator[list[str]]:
    """The rows as facts, in parts, in the language of the program."""
    if shown_as is None:
        yield from ([f"{relation}({', '.join(row)})" for row in rows] for rows in view.shown_rows())
        return
    types = [t.name for t in view.table.types]
    for rows in _parts(view):
        yield [shown_as.fact(name, row, types) for row in rows]
