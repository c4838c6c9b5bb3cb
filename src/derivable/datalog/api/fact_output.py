"""Relations written to files: text in columns, Parquet and Arrow. See `fact_files` for the endings."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from derivable.core.diagnostics import UnsupportedError
from derivable.core.files import atomic_write, checked_path
from derivable.core.lazy import importing
from derivable.datalog.facts.fact_files import COLUMN_ENDINGS, ENDINGS, FileForm
from derivable.datalog.values.datetimes import Duration

if TYPE_CHECKING:
    from derivable.datalog.api.database import RelationView


def write_facts(view: RelationView, path: str | os.PathLike, form: FileForm | None = None) -> None:
    """Write a relation to a file whose ending says how, whole or not at all; tags come first, as `tag`.

    Raises UnsupportedError for an ending that is none of `ENDINGS`, or if the file is to be compressed.
    """
    with importing():
        import pyarrow as arrow

    form = form or FileForm()
    place = checked_path(path)
    ending = os.path.splitext(place.name.lower())[1]
    if ending not in ENDINGS:
        raise UnsupportedError(
            f"cannot tell the format of {place.name!r} from its ending", hint=f"end it in {', '.join(ENDINGS)}"
        )
    table = view.to_arrow()
    if view.tags is not None:
        extra = table.num_columns - len(view.columns)
        names = table.column_names
        table = table.select([*names[-extra:], *names[:-extra]])
    with atomic_write(place, "wb") as file:
        if ending == ".parquet":
            from pyarrow import parquet

            parquet.write_table(table, file)
        elif ending in COLUMN_ENDINGS:
            from pyarrow import feather

            feather.write_feather(table, file)
        else:
            from pyarrow import csv as arrow_csv

            delimiter = form.delimiter or ("," if ending == ".csv" else "\t")
            style = "needed" if ending == ".csv" else "none"
            options = arrow_csv.WriteOptions(include_header=False, delimiter=delimiter, quoting_style=style)
            if form.header:
                # Arrow would quote the names.
                file.write(f"{delimiter.join(table.column_names)}\n".encode())
            for position, field in enumerate(table.schema):
                if arrow.types.is_duration(field.type):
                    texts = [str(Duration.of(value)) for value in table.column(position).to_pylist()]
                    table = table.set_column(position, field.name, arrow.array(texts, arrow.string()))
            try:
                arrow_csv.write_csv(table, file, options)
            except arrow.ArrowInvalid as error:
                raise UnsupportedError(
                    f"{place.name} cannot hold the values of this relation: {error}",
                    hint="write a .csv or .parquet file",
                ) from None
