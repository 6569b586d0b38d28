"""What JSON has beside the declared columns: as one column of JSON text where it is asked for, else said once.

With `extra = "all"` events have a column `extra`: an object of all fields that are not declared, with their values as
they were written; null if there are none. Of an object of which a part is declared, the rest is in it. It is what users
of Spark know as rescued data. An event with more than EXTRA_BYTES_MAX of it is malformed. Otherwise undeclared fields
are left out, and a warning names those of the first events.
"""

import json
import logging
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.core.arrays.jit import Ints, read_only
from geoswarm.errors import SettingsError
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.run.columns import EXTRA, Columns
from geoswarm.run.json_values import DEPTH_MAX
from geoswarm.run.stream_log import TakenFile
from geoswarm.run.undeclared_kernels import LEFT_OUT, copy_undeclared

_LOG = logging.getLogger(__name__)
EXTRA_BYTES_MAX = 1 << 20
"""The most that Kafka takes as one message by default: nothing that comes from such a topic is refused for it."""
SAMPLE_EVENTS, SAMPLE_FILES, SAMPLE_BYTES = 100, 10, 1 << 18
"""What is looked at for fields that are left out."""
SAID_MAX = 20
"""Fields that the warning names."""
_ALL = re.compile(r"(?:^|,)\s*all\s*$")
_BLANK = " \t\r\n"
_STRINGS = json.JSONDecoder(strict=False)
Tree = dict[str, Any]
"""The declared names, in objects those within them; None where all of a value is declared."""


def split_all(extra: str) -> tuple[str, bool]:
    """The columns that `extra` declares, and whether it asks for all others, too: "all", or "speed double, all"."""
    found = _ALL.search(extra)
    return (extra[: found.start()], True) if found else (extra, False)


def keeps_extra(kind: str) -> bool:
    """Whether a format has fields beside the declared columns; Parquet gives all columns that it has."""
    if kind == "csv":
        raise SettingsError('extra = "all" is for JSON: declare columns of CSV, extra = "speed double"')
    return kind == "json"


def extra_field(declared: Iterable[pa.Field]) -> pa.Field:
    if any(field.name == EXTRA for field in declared):
        raise SettingsError(f'extra = "all" makes a column {EXTRA}, and one is declared: call that otherwise')
    return pa.field(EXTRA, pa.string())


def declared_tree(columns: Columns, schema: pa.Schema) -> Tree:
    """The names that are read, as a source has them. A declared struct is declared with all that it has."""
    tree: Tree = {}
    for field in columns.raw(schema):
        *outer, last = columns.path(field.name)
        node = tree
        for name in outer:
            node = node.setdefault(name, {})
        node[last] = None
    return tree


def with_extra(batch: pa.RecordBatch, data: Any, begins: Ints, ends: Ints, columns: Columns) -> pa.RecordBatch:
    """The rows with what is not declared of their objects, which begin and end there in `data`."""
    tree = declared_tree(columns, batch.schema)
    malformed = batch.column(MALFORMED)
    sound = malformed.is_null().to_numpy(zero_copy_only=False)
    whole = np.where(sound, ends, begins)
    texts = undeclared_texts(data, begins, whole, tree)
    lengths = pc.binary_length(texts).fill_null(0).to_numpy(zero_copy_only=False)
    over = lengths > EXTRA_BYTES_MAX
    if over.any():
        why = f"it has {{}} bytes of fields that are not declared, more than {EXTRA_BYTES_MAX:,}: declare some; "
        said = malformed.to_pylist()
        for row in np.flatnonzero(over).tolist():
            said[row] = why.format(f"{lengths[row]:,}") + texts[row].as_py()[:1000]
        batch = batch.set_column(batch.schema.get_field_index(MALFORMED), MALFORMED, pa.array(said, pa.string()))
        texts = pc.if_else(pa.array(over), pa.scalar(None, pa.string()), texts)
    return batch.set_column(batch.schema.get_field_index(EXTRA), pa.field(EXTRA, pa.string()), texts)


def undeclared_texts(data: Any, begins: Ints, ends: Ints, tree: Tree) -> pa.Array:
    """The JSON text of what is not declared of each object, null if there is nothing."""
    held = read_only(np.frombuffer(data, np.uint8)) if data is not None and len(data) else np.empty(0, np.uint8)
    names, edges, firsts = _flat(tree)
    room = int((ends - begins).sum()) + len(begins) + 2
    out, out_ends = np.empty(room, np.uint8), np.empty(len(begins), np.int64)
    odd = copy_undeclared(held, begins, ends, names, edges, firsts, out, out_ends)
    offsets = np.append(0, out_ends)
    found = pa.Array.from_buffers(
        pa.large_binary(), len(begins), [None, pa.py_buffer(offsets), pa.py_buffer(out[: offsets[-1]])]
    )
    texts = _as_text(pc.if_else(pc.equal(pc.binary_length(found), 0), pa.scalar(None, pa.large_binary()), found))
    if not odd.any():
        return texts
    view = memoryview(data)
    slow = [
        undeclared_part(bytes(view[begins[row] : ends[row]]).decode(errors="replace"), tree)
        for row in np.flatnonzero(odd).tolist()
    ]
    return pc.replace_with_mask(texts, pa.array(odd), pa.array(slow, pa.string()))


def _as_text(found: pa.Array) -> pa.Array:
    try:
        return found.cast(pa.string())
    except pa.ArrowInvalid:  # no UTF-8
        return pa.array([v if v is None else v.decode(errors="replace") for v in found.to_pylist()], pa.string())


def _flat(tree: Tree) -> tuple[Any, Ints, Ints]:
    """The tree as the kernel takes it."""
    nodes: list[Tree] = [tree]
    names, edges, firsts = bytearray(), list[int](), [0]
    for node in nodes:  # which grows meanwhile
        for name, inner in node.items():
            begin = len(names)
            names += name.encode()
            edges += [begin, len(names), LEFT_OUT if inner is None else len(nodes)]
            if inner is not None:
                nodes.append(inner)
        firsts.append(len(edges) // 3)
    text = np.frombuffer(bytes(names) or b"\0", np.uint8)
    return read_only(text), np.array(edges or [0], np.int64), np.array(firsts, np.int64)


# -- the same in plain Python


def undeclared_part(text: str, tree: Tree) -> str | None:
    """What is not declared of one object, as JSON text with the values as they were written; None if that is all."""
    left = _left(text, tree)
    return left or None


def _left(text: str, tree: Tree) -> str:
    kept = []
    for name, key, value in _members(text):
        inner = tree.get(name, False)
        if inner is False:
            kept.append(f"{key}:{value}")
        elif inner is not None and value.startswith("{"):
            part = _left(value, inner)
            if part:
                kept.append(f"{key}:{part}")
    return "{" + ",".join(kept) + "}" if kept else ""


def _members(text: str) -> Iterator[tuple[str, str, str]]:
    """The names of an object, their texts, and the texts of the values."""
    at = text.index("{") + 1
    while True:
        while text[at] in _BLANK + ",":
            at += 1
        if text[at] == "}":
            return
        begin, (name, at) = at, _STRINGS.raw_decode(text, at)
        key = text[begin:at]
        while text[at] in _BLANK + ":":
            at += 1
        end = _value_end(text, at)
        yield name, key, text[at:end]
        at = end


def _value_end(text: str, at: int) -> int:
    depth, begin = 0, at
    while at < len(text):
        letter = text[at]
        if letter == '"':
            _, at = _STRINGS.raw_decode(text, at)
            continue
        if letter in "{[":
            depth += 1
        elif letter in "}]":
            if depth == 0:
                break
            depth -= 1
        elif letter == "," and depth == 0:
            break
        at += 1
    return begin + len(text[begin:at].rstrip(_BLANK))


# -- what is left out


class LeftOut:
    """Says once which fields of JSON are left out, of a sample of the first rows that come."""

    def __init__(self) -> None:
        self.is_due = True

    def look(self, texts: Sequence[bytes | None], columns: Columns, schema: pa.Schema, where: str) -> None:
        known = [text for text in texts if text is not None and text.strip()][:SAMPLE_EVENTS]
        if not self.is_due or not known:
            return
        self.is_due = False
        if EXTRA in schema.names and columns.has_extra:
            return
        fields = left_out_fields(known, declared_tree(columns, schema))
        if fields:
            more = f" and {len(fields) - SAID_MAX} others" if len(fields) > SAID_MAX else ""
            _LOG.warning(
                "%s has fields that are not declared, and are left out: %s%s (of the first %d rows). To keep some, "
                'declare them, extra = "%s ..."; all of events, as JSON in one column: extra = "all"',
                where,
                ", ".join(fields[:SAID_MAX]),
                more,
                len(known),
                fields[0].split(".")[-1],
            )


def first_lines(files: Sequence[TakenFile]) -> list[bytes | None]:
    """The first lines of some files, as far as they can be read."""
    lines = list[bytes | None]()
    for file in files[:SAMPLE_FILES]:
        with suppress(OSError, pa.ArrowException), pa.input_stream(str(file.path), compression="detect") as stream:
            lines += bytes(stream.read(SAMPLE_BYTES)).splitlines()[:SAMPLE_EVENTS]
    return lines


def left_out_fields(texts: Iterable[bytes], tree: Tree) -> list[str]:
    """The undeclared fields of some objects, with dots before those within others."""
    found = dict[str, None]()
    for text in texts:
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            continue
        if isinstance(parsed, dict):
            found.update(dict.fromkeys(_undeclared_names(parsed, tree)))
    return list(found)


def _undeclared_names(parsed: dict[str, Any], tree: Tree, prefix: str = "", depth: int = 0) -> Iterator[str]:
    for name, value in parsed.items():
        inner = tree.get(name, False)
        if inner is False:
            yield prefix + name
        elif inner is not None and isinstance(value, dict) and depth < DEPTH_MAX:
            yield from _undeclared_names(value, inner, f"{prefix}{name}.", depth + 1)
