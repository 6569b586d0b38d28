"""How a source names the columns of events or operations: one value, which every way to read a source uses.

    Columns.of({"x": "lng", "event_id": "trip.id"}, ts_unit="ms")

The key is the column as the engine has it, the value its path in the source: a dot leads into a struct or an object,
and a name that has a dot itself stands in double quotes. Everything that is not named keeps its name, and what is named
otherwise leaves no second copy. `source_times.py` has what `ts_unit` says, and `made_ids.py` how an `event_id` is made
that the source does not have.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal, cast, get_args

import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.config import SubIdKind
from geoswarm.core.arrays.uuids import is_uuid
from geoswarm.errors import SchemaError, SettingsError
from geoswarm.flow.conform import IDS
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.model import GEOMETRY, OBJECT, SUB_ID, TEXT
from geoswarm.parameters import suggestion
from geoswarm.run.made_ids import EVENT_ID, MADE
from geoswarm.run.source_times import IN_TEXT, TS, TsUnit, check_unit, read_times

EXTRA = "extra"
"""The column of what is not declared."""
IdKind = Literal["integer", "text", "made"]
Path = tuple[str, ...]
"""The names that lead to a column, from the outermost struct inwards."""
DEPTH_MAX = 16
"""Names in a path: far more than topics have, and far below what a recursion may take."""
KNOWN = {TEXT.name: pa.string(), OBJECT.name: pa.string(), GEOMETRY.name: pa.string()}
"""Columns with a meaning, and their types in a source of text that does not declare them."""
_STEP = re.compile(r'(?:"(?P<quoted>[^"]+)"|(?P<plain>[^".]+))(?:\.(?=.)|$)')


@dataclass(frozen=True)
class Columns:
    paths: tuple[tuple[str, Path], ...] = ()
    """Our names, each with its path in the source; all others are the same on both sides."""
    ts_unit: TsUnit | None = None
    """What the numbers or texts of `ts` mean; None: its type says it."""
    event_id: IdKind | None = None
    """What the ids of events are in a source of text, None for integers; or that they are made."""

    sub_id: SubIdKind = "integer"
    """The same of subscriptions."""
    has_extra: bool = False
    """Whether what JSON has beside them becomes one more column (`undeclared.py`)."""

    @classmethod
    def of(
        cls,
        names: Mapping[str, str] | None = None,
        ts_unit: str | None = None,
        event_id: str | None = None,
        *,
        sub_id: str | None = None,
        has_extra: bool = False,
    ) -> "Columns":
        paths = tuple((name, read_path(path)) for name, path in (names or {}).items())
        _check(paths)
        if event_id not in (None, *get_args(IdKind)):
            raise SettingsError(f"event_id cannot be {event_id!r}: {suggestion(str(event_id), list(get_args(IdKind)))}")
        if sub_id not in (None, *get_args(SubIdKind)):
            raise SettingsError(f"sub_id cannot be {sub_id!r}: {suggestion(str(sub_id), list(get_args(SubIdKind)))}")
        if event_id == MADE and EVENT_ID in dict(paths):
            theirs = show_path(dict(paths)[EVENT_ID])
            raise SettingsError(f"event_id is made, and taken from column {theirs}, too: keep one of them")
        kind = None if event_id == "integer" else cast("IdKind | None", event_id)
        return cls(paths, check_unit(ts_unit), kind, cast(SubIdKind, sub_id or "integer"), has_extra)

    @property
    def makes_ids(self) -> bool:
        return self.event_id == MADE

    @property
    def made(self) -> tuple[str, ...]:
        """The columns that are made by the tasks that read, and by nobody else."""
        return (*((EVENT_ID,) if self.makes_ids else ()), *((EXTRA,) if self.has_extra else ()))

    def path(self, name: str) -> Path:
        return dict(self.paths).get(name, (name,))

    def or_geometry(self, primary: str | None) -> "Columns":
        """The same, with `geometry` taken from the primary geometry of a file, unless it is named."""
        if primary in (None, GEOMETRY.name) or GEOMETRY.name in dict(self.paths):
            return self
        assert primary is not None
        return replace(self, paths=(*self.paths, (GEOMETRY.name, (primary,))))

    def flat(self) -> "Columns":
        """The same for a source without columns in others, where a path is a name with dots."""
        return replace(self, paths=tuple((name, (".".join(path),)) for name, path in self.paths))

    # -- a source whose columns are known

    def bind(self, source: pa.Schema, what: str = "the source") -> pa.Schema:
        """The columns of a source under our names: those that are named or made, then all that is left."""
        if self.makes_ids and EVENT_ID in source.names and all(path[:1] != (EVENT_ID,) for _, path in self.paths):
            raise SchemaError(
                f"event_id is to be made, and {what} has a column event_id itself: leave event_id = '{MADE}' out, or "
                'give that another name, such as event_id_before = "event_id"'
            )
        kind = _kind_at(source, self.path(EVENT_ID), what) if self.event_id == "text" else None
        if kind is not None and not _is_text(kind):
            raise SchemaError(
                f"event_id is said to be text, and {what} has it as {kind}: leave that out, since the types are known"
            )
        if not self.paths and not self.made:
            return source
        named = [pa.field(name, _kind_at(source, path, what)) for name, path in self.paths]
        if self.makes_ids:
            named.insert(0, pa.field(EVENT_ID, pa.int64()))
        rest = [field for field in (self._rest(field, (field.name,)) for field in source) if field is not None]
        clash = sorted({field.name for field in named} & {field.name for field in rest})
        if clash:
            name = clash[0]
            theirs = show_path(self.path(name))
            raise SchemaError(
                f"column {name} is taken from {theirs}, and {what} has a column {name} itself: "
                f'give that another name, such as {name}_before = "{name}", or leave {theirs} as it is'
            )
        return pa.schema([*named, *rest, *([pa.field(EXTRA, pa.string())] if self.has_extra else ())])

    def dropped(self, name: str) -> list[Path]:
        """What is taken out of a column of the source, as paths within it; the empty one is all of it."""
        return [path[1:] for _, path in self.paths if path[0] == name]

    def _rest(self, field: pa.Field, at: Path) -> pa.Field | None:
        """What is left of a field at a path of the source; None if nothing is."""
        taken = [path for _, path in self.paths if path[: len(at)] == at]
        if not taken:
            return field
        if at in taken:
            return None
        inner = [self._rest(part, (*at, part.name)) for part in field.type]
        left = [part for part in inner if part is not None]
        return field.with_type(pa.struct(left)) if left else None

    def take(self, batch: pa.RecordBatch, wanted: pa.Schema) -> pa.RecordBatch:
        """The columns of `wanted` that a batch of the source has, in its own types."""
        if not self.paths and batch.schema.names == wanted.names:
            return batch
        found = {field.name: _column_at(batch, self.path(field.name), field.type) for field in wanted}
        return pa.record_batch({name: column for name, column in found.items() if column is not None})

    def leaves(self, wanted: pa.Schema) -> list[str]:
        """The columns of a Parquet file that `wanted` needs, as its reader names them: nothing else is read."""
        return [leaf for field in wanted for leaf in _leaves(self.path(field.name), field.type)]

    # -- a source of text, whose columns are declared

    def raw(self, schema: pa.Schema) -> list[pa.Field]:
        """The columns to read for `schema`, with `ts` in the type that has its unit."""
        fields = [field for field in schema if field.name not in (MALFORMED, *self.made)]
        if self.ts_unit is None:
            return fields
        return [field.with_type(IN_TEXT[self.ts_unit]) if field.name == TS else field for field in fields]

    def ours(self, table: pa.Table, schema: pa.Schema) -> pa.Table:
        """A table that was read with the columns of the source, under our names, and with `ts` as a timestamp."""
        if not self.paths and self.ts_unit is None:
            return table
        return self.with_times(pa.Table.from_batches([self.take(batch, schema) for batch in _batches(table)]))

    def with_times(self, table: pa.Table) -> pa.Table:
        """The same with `ts` as a timestamp, where it has a unit."""
        if self.ts_unit is None:
            return table
        read = [pa.Table.from_batches([read_times(batch, self.ts_unit)]) for batch in _batches(table)]
        return pa.concat_tables(read, promote_options="default")  # some may have MALFORMED

    def declare(self, fields: Iterable[pa.Field]) -> pa.Schema:
        """The declared columns under our names. Those with a meaning need no declaration once they are named."""
        declared = [self._id_field(field) if field.name in (EVENT_ID, SUB_ID.name) else field for field in fields]
        names = {field.name for field in declared}
        declared += [pa.field(n, KNOWN[n]) for n, _ in self.paths if n in KNOWN and n not in names]
        names.update(KNOWN)
        for name, path in self.paths:
            if name not in names:
                raise SchemaError(
                    f'column {name} is taken from {show_path(path)}, but has no type: declare it, extra = "{name} '
                    f'double"; or {suggestion(name, sorted(names))}'
                )
        self.nest(self.raw(pa.schema(declared)))
        return pa.schema(declared)

    def _id_field(self, field: pa.Field) -> pa.Field:
        is_text = (self.sub_id if field.name == SUB_ID.name else self.event_id) == "text"
        return field.with_type(pa.string()) if is_text else field

    def nest(self, fields: Iterable[pa.Field]) -> list[pa.Field]:
        """The columns as the source has them, one in the other."""
        tree: dict[str, Any] = {}
        for field in fields:
            *outer, last = self.path(field.name)
            node = tree
            for name in outer:
                node = node.setdefault(name, {})
                if not isinstance(node, dict):
                    raise _overlap(field.name, self.path(field.name))
            if last in node:
                raise _overlap(field.name, self.path(field.name))
            node[last] = field.type
        return [_field(name, node) for name, node in tree.items()]


def check_declared_ids(said: SubIdKind, ids: SubIdKind) -> None:
    """Raises SchemaError if operations in a format without types are not read with the ids that a checkpoint has."""
    if said != ids:
        remedy = 'say sub_id = "text" where they are read' if ids == "text" else 'leave sub_id = "text" out'
        raise SchemaError(f"ids of subscriptions are {ids}s in this checkpoint, and {said}s in operations: {remedy}")


def id_forms(fields: Iterable[pa.Field]) -> list[dict[str, pa.DataType]]:
    """How ids may be written in JSON, by column, where they are texts here: all as texts, or all as integers."""
    known = (*IDS, SUB_ID.name)
    texts = [field.name for field in fields if field.name in known and pa.types.is_string(field.type)]
    forms = product((pa.string(), pa.int64()), repeat=len(texts))
    return [dict(zip(texts, form, strict=True)) for form in forms]


PLAIN = Columns()
"""Every column has our name."""


def read_path(text: str) -> Path:
    """The names in a path such as `trip.id` or `"trip.id".at`."""
    path, at = list[str](), 0
    while at < len(text):
        step = _STEP.match(text, at)
        if step is None:
            break
        path.append(step["quoted"] or step["plain"])
        at = step.end()
    if not path or at < len(text) or len(path) > DEPTH_MAX:
        raise SettingsError(
            f"the column {text!r} cannot be read: write a name, or names with dots between them (at most {DEPTH_MAX}); "
            'a name that has a dot itself stands in double quotes, as in "a.b".c'
        )
    return tuple(path)


def show_path(path: Path) -> str:
    return ".".join(f'"{name}"' if "." in name else name for name in path)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or is_uuid(kind))


def _check(paths: tuple[tuple[str, Path], ...]) -> None:
    for name, _ in paths:
        if not name.strip() or name == MALFORMED:
            raise SettingsError(f"a column cannot be called {name!r}: give it another name")
    for number, (name, path) in enumerate(paths):
        for other, longer in paths[:number]:
            size = min(len(path), len(longer))
            if path[:size] == longer[:size]:
                raise SettingsError(
                    f"columns {other} and {name} are both taken from {show_path(path[:size])}: name each part once"
                )


def _batches(table: pa.Table) -> list[pa.RecordBatch]:
    """At least one. They are not combined: of texts with more than 2 GB, Arrow makes several again."""
    return table.to_batches() or [pa.RecordBatch.from_pylist([], table.schema)]


def _overlap(name: str, path: Path) -> SchemaError:
    return SchemaError(
        f"column {name} is taken from {show_path(path)}, which another column is taken from, too: give each its own"
    )


def _field(name: str, node: Any) -> pa.Field:
    if not isinstance(node, dict):
        return pa.field(name, node)
    return pa.field(name, pa.struct([_field(inner, kind) for inner, kind in node.items()]))


def _kind_at(source: pa.Schema, path: Path, what: str) -> pa.DataType:
    fields, kind = list(source), None
    for depth, name in enumerate(path):
        known = [field.name for field in fields if field.name != MALFORMED]
        if name not in known:
            where = f"column {show_path(path[:depth])} of {what}" if depth else what
            if not known:
                raise SchemaError(f"{where} is {kind} and has no columns in it, so there is no {show_path(path)}")
            raise SchemaError(f"{where} has no column {name!r}: {suggestion(name, known)}")
        kind = next(field.type for field in fields if field.name == name)
        fields = list(kind) if pa.types.is_struct(kind) else []
    return kind


def _column_at(batch: pa.RecordBatch, path: Path, wanted: pa.DataType) -> pa.Array | None:
    """A column of a batch, with no more of a struct than is wanted; None if the batch does not have it."""
    if path[0] not in batch.schema.names:
        return None
    column = batch.column(path[0])
    for name in path[1:]:
        if not pa.types.is_struct(column.type) or column.type.get_field_index(name) < 0:
            return None
        column = pc.struct_field(column, [name])
    return _narrow(column, wanted)


def _narrow(column: pa.Array, wanted: pa.DataType) -> pa.Array:
    if column.type == wanted or not (pa.types.is_struct(wanted) and pa.types.is_struct(column.type)):
        return column
    fields = [field for field in wanted if column.type.get_field_index(field.name) >= 0]
    parts = [_narrow(pc.struct_field(column, [field.name]), field.type) for field in fields]
    return pa.StructArray.from_arrays(parts, names=[field.name for field in fields], mask=column.is_null())


def _leaves(path: Path, kind: pa.DataType) -> list[str]:
    if not pa.types.is_struct(kind):
        return [".".join(path)]
    return [leaf for field in kind for leaf in _leaves((*path, field.name), field.type)]
