"""A Delta table that tasks write files for, and the driver adds them to in one transaction per batch.

The transaction carries the checkpoint's identity and the number of the batch (an application transaction, `txn` in the
protocol), so a batch that the table has is recognised, whatever happened between its commit and ours. Files that no
transaction names are no rows of the table; `vacuum` removes them.
"""

import json
import shutil
import uuid
from collections.abc import Sequence
from datetime import date, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from geoswarm.errors import SchemaError, SettingsError, StreamError

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction

TEXT_MAX = 32
"""Characters of a text in the statistics of a file, as other writers of Delta have it."""
FINITE = ("x", "y")
"""Columns of floating-point numbers with statistics. Others may hold NaN, which is larger than the largest that Parquet
reports, and a reader would leave out files that have it."""


NANOSECONDS = "timestamp[ns"
"""A type that deltalake knows and most readers do not."""


def require_deltalake() -> None:
    try:
        import deltalake  # noqa: F401
    except ImportError as error:
        raise SettingsError("a Delta sink needs the package deltalake: pip install 'geoswarm[delta]'") from error


class DeltaFolder:
    """One table, for the batches of one checkpoint."""

    def __init__(self, path: Path, checkpoint: str, schema: pa.Schema) -> None:
        """The table is made if it is not there. Otherwise it must have the columns of `schema`; further columns of its
        own must be nullable."""
        from deltalake import DeltaTable

        self.path, self._app = path, f"geoswarm-{checkpoint}"
        self._columns = stored_schema(schema)
        self._table: DeltaTable = DeltaTable.create(str(path), self._columns, mode="ignore")
        for left in path.glob("_staged-*"):
            shutil.rmtree(left, ignore_errors=True)

    def has(self, batch_id: int) -> bool:
        self._table.update_incremental()
        _check_table(self._table, self._columns, self.path)
        done = self._table.transaction_version(self._app)
        return done is not None and done >= batch_id

    def stage(self, batch_id: int) -> Path:
        """A folder that does not exist, for the tasks of a batch."""
        return self.path / f"_staged-{batch_id}-{uuid.uuid4().hex}"

    def add(self, staged: Path, batch_id: int) -> None:
        """Add the files of a batch, which are complete. `has` was asked before: what another engine has committed since
        is a conflict."""
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import DeltaError

        actions = self._move(staged, batch_id)
        if not actions:
            return
        once = CommitProperties(
            custom_metadata={"batch": batch_id}, app_transactions=[Transaction(self._app, batch_id)]
        )
        try:
            self._table.create_write_transaction(
                list(actions), mode="append", schema=self._table.schema(), commit_properties=once
            )
        except DeltaError as error:
            raise StreamError(
                f"batch {batch_id} was not added to the Delta table at {self.path}: {error}; if another engine writes "
                "to it from the same checkpoint, stop one of the two; then start again"
            ) from error

    def _move(self, staged: Path, batch_id: int) -> "list[AddAction]":
        """Give the files their places in the table; those without rows are left out."""
        from deltalake.transaction import AddAction

        actions = []
        for number, part in enumerate(sorted(staged.glob("*.parquet"))):
            footer = pq.read_metadata(part)
            if footer.num_rows:
                final = self.path / f"batch-{batch_id}-{number:05d}-{uuid.uuid4().hex}.parquet"
                part.rename(final)
                info = final.stat()
                stats = json.dumps(file_statistics(footer))
                actions.append(AddAction(final.name, info.st_size, {}, int(info.st_mtime * 1e3), True, stats))
        shutil.rmtree(staged)
        return actions


def stored_schema(schema: pa.Schema) -> pa.Schema:
    """The columns as a Delta table returns them. Raises an error for types that it does not have."""
    from deltalake import Schema

    stored, wrong = [], []
    for field in schema:
        field = field.with_type(_stored_type(field.type)).remove_metadata()
        try:
            back = pa.schema(Schema.from_arrow(pa.schema([field])).to_arrow()).field(0).type
        except Exception:  # deltalake raises no narrower one
            back = None
        if back == field.type and NANOSECONDS not in str(back):
            stored.append(field)
        else:
            wrong.append(f"{field.name} ({field.type})")
    if wrong:
        raise SchemaError(
            f"Delta has no type for {', '.join(wrong)}: leave these columns out, or convert them first, unsigned "
            "integers to wider signed ones, times to microseconds"
        )
    return pa.schema(stored)


def _stored_type(kind: pa.DataType) -> pa.DataType:
    """Without differences that Arrow makes and Parquet does not."""
    if pa.types.is_dictionary(kind):
        return _stored_type(kind.value_type)
    if pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return pa.string()
    if pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(kind.value_field.with_type(_stored_type(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([kind.field(i).with_type(_stored_type(kind.field(i).type)) for i in range(kind.num_fields)])
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        return pa.timestamp(kind.unit, "UTC")
    return kind


def _check_table(table: "DeltaTable", wanted: pa.Schema, path: Path) -> None:
    """Refuse a table to which these columns cannot be added as they are."""
    held = pa.schema(table.schema().to_arrow())
    wrong = [
        f"{field.name} is {_words(held, field.name)} there and {_words(wanted, field.name)} here"
        for field in wanted
        if field.name not in held.names
        or held.field(field.name).type != field.type
        or (field.nullable and not held.field(field.name).nullable)
    ]
    wrong += [f"{f.name} is missing here" for f in held if f.name not in wanted.names and not f.nullable]
    if wrong:
        raise SchemaError(
            f"the Delta table at {path} has other columns: {'; '.join(wrong)}: alter the table, or choose another path"
        )
    metadata = table.metadata()
    rules = [f"partitions by {', '.join(metadata.partition_columns)}"] if metadata.partition_columns else []
    settings = (*metadata.configuration, *(key for field in table.schema().fields for key in field.metadata))
    rules += [key for key in settings if key.startswith(RULES)]
    if rules:
        raise SettingsError(
            f"the Delta table at {path} has {'; '.join(sorted(set(rules)))}, which a sink that adds files as they are "
            "cannot follow: choose another path"
        )


RULES = (
    "delta.columnMapping",
    "delta.constraints.",
    "delta.generationExpression",
    "delta.identity",
    "delta.invariants",
    "delta.rowTracking",
    "delta.enableRowTracking",
    "delta.enableIcebergCompat",
    "delta.typeWidening",
)
"""What a table may ask of who writes to it, by the names of its settings and of its fields' metadata."""


def _words(schema: pa.Schema, name: str) -> str:
    if name not in schema.names:
        return "missing"
    field = schema.field(name)
    return f"{field.type}{'' if field.nullable else ', never null'}"


def file_statistics(footer: pq.FileMetaData) -> dict[str, Any]:
    """What readers decide by whether they need a file, from what its footer says."""
    kinds = {field.name: field.type for field in footer.schema.to_arrow_schema()}
    least, most, nulls = dict[str, Any](), dict[str, Any](), dict[str, int]()
    for number in range(footer.num_columns):
        name = footer.schema.column(number).path
        found = [footer.row_group(group).column(number).statistics for group in range(footer.num_row_groups)]
        if name not in kinds or any(s is None or not s.has_null_count for s in found):
            continue
        nulls[name] = sum(s.null_count for s in found)
        filled = [s for s in found if s.num_values]
        if filled and _is_ordered(name, kinds[name]) and all(s.has_min_max for s in filled):
            _note_range(name, filled, least, most)
    return {"numRecords": footer.num_rows, "minValues": least, "maxValues": most, "nullCount": nulls}


def _is_ordered(name: str, kind: pa.DataType) -> bool:
    is_time = pa.types.is_timestamp(kind) or pa.types.is_date32(kind)
    return bool(is_time or pa.types.is_signed_integer(kind) or pa.types.is_string(kind) or name in FINITE)


def _note_range(name: str, found: Sequence[Any], least: dict[str, Any], most: dict[str, Any]) -> None:
    low, high = min(s.min for s in found), max(s.max for s in found)
    least[name] = _as_json(low)
    if not (isinstance(high, str) and len(high) > TEXT_MAX):  # its beginning would be less than the text itself
        most[name] = _as_json(high)


def _as_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    return value[:TEXT_MAX] if isinstance(value, str) else value
