"""The log of what each batch holds and which batches are complete, in the format of Spark's streams.

    offsets/N     how far each source goes, written before batch N runs
    commits/N     written when it is complete
    sources/S/N   the files that a file source took with its N-th step; every tenth holds all before it, too;
                  of Kafka only the first, with the offsets where it began

So a checkpoint can move from this engine to Spark and back, and neither reads a file twice. `run/offsets.py` reads the
same files to notice changes.
"""

import json
import uuid
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

from geoswarm.errors import StreamError
from geoswarm.store.storage import Storage

VERSION = b"v1"
BATCHES_KEPT = 100
"""The number of batches kept for inspection; a start needs the last two."""
COMPACT_EVERY = 10
"""Spark's default: every so many steps, its logs of files must have a compact one."""
Offset = dict[str, Any]


class TakenFile(NamedTuple):
    path: Path
    modified_ms: int
    step: int
    number: int = -1
    """Among all that its source took, where that is asked for."""


class StreamLogReader:
    def __init__(self, storage: Storage) -> None:
        self.storage = storage

    def offsets(self, batch: int) -> list[Offset | None] | None:
        """The offsets at which a batch ends, by source; None if the batch was never begun."""
        if not self.storage.exists(f"offsets/{batch}"):
            return None
        lines = self.storage.read(f"offsets/{batch}").splitlines()[2:]
        return [None if line == b"-" else json.loads(line) for line in lines]

    def files(self, source: int, after: int, until: int) -> list[TakenFile]:
        """The files of the steps behind `after` up to `until`."""
        steps = self._steps(source)
        compact = max((step for step, name in steps.items() if name.endswith(".compact")), default=-1)
        missing = [step for step in range(max(after, compact) + 1, until + 1) if step not in steps]
        if missing:
            raise StreamError(
                f"the log of source {source} lacks its step {missing[0]}, so a batch cannot be run again as it was: "
                f"restore {self.storage.root}/sources, or start a new checkpoint"
            )
        # A compact entry has all files ever taken: it is read only if some of the wanted steps are nowhere else.
        wanted = {step: name for step, name in steps.items() if after < step <= until or after < step == compact}
        found = [file for step in sorted(wanted) for file in self._read(source, wanted[step])]
        return [file for file in dict.fromkeys(found) if after < file.step <= until]

    def first_offset(self, source: int) -> Offset:
        """Where a source that reads messages began."""
        held = self.storage.read(f"sources/{source}/0")
        found: Offset = json.loads(held[held.index(b"{") :])
        return found

    def _read(self, source: int, name: str) -> list[TakenFile]:
        lines = self.storage.read(f"sources/{source}/{name}").splitlines()[1:]
        entries = [json.loads(line) for line in lines if line.strip()]
        return [TakenFile(path_of_uri(e["path"]), int(e["timestamp"]), int(e["batchId"])) for e in entries]

    def _steps(self, source: int) -> dict[int, str]:
        return {int(name.split(".")[0]): name for name in self.storage.names(f"sources/{source}")}


class StreamLog(StreamLogReader):
    def __init__(self, folder: str) -> None:
        super().__init__(Storage(folder, encrypts=False))  # as Spark writes it
        if not self.storage.exists("metadata"):
            self.storage.write("metadata", json.dumps({"id": str(uuid.uuid4())}, separators=(",", ":")).encode())

    def last_committed(self) -> int:
        return max(self._numbers("commits"), default=-1)

    def begin(self, batch: int, offsets: list[Offset | None], now_ms: int) -> None:
        head = {"batchWatermarkMs": 0, "batchTimestampMs": now_ms, "conf": {}}
        lines = ["-" if offset is None else _json(offset) for offset in offsets]
        self._write(f"offsets/{batch}", [_json(head), *lines])

    def commit(self, batch: int) -> None:
        """A power cut may lose it: then the batch is run again."""
        self._write(f"commits/{batch}", [_json({"nextBatchWatermarkMs": 0})], durable=False)
        self._forget(batch - BATCHES_KEPT)

    def forget_old(self) -> None:
        """Remove what is beyond the batches kept; `commit` removes one at a time."""
        for old in self._numbers("offsets")[:-BATCHES_KEPT]:
            self._forget(old)

    def _forget(self, batch: int) -> None:
        for kind in ("offsets", "commits"):
            self.storage.remove(f"{kind}/{batch}")
            self.storage.remove(f"{kind}/.{batch}.crc")

    # -- files that a source took

    def all_files(self, source: int) -> list[TakenFile]:
        """All files that a source took, in order."""
        steps = self._steps(source)
        compact = max((step for step, name in steps.items() if name.endswith(".compact")), default=-1)
        return [file for step in sorted(steps) if step >= compact for file in self._read(source, steps[step])]

    def take(self, source: int, step: int, files: list[TakenFile]) -> None:
        """Log the files of the next step of a source; `step` is one more than the last."""
        name, lines = f"{step}", list[str]()
        if (step + 1) % COMPACT_EVERY == 0:
            name, lines = f"{step}.compact", self._lines(source)
        lines += [
            _json({"path": _uri(file.path), "timestamp": file.modified_ms, "batchId": file.step}) for file in files
        ]
        self._write(f"sources/{source}/{name}", lines)

    def _lines(self, source: int) -> list[str]:
        """The entries of all files that a source took, as they are written."""
        steps = self._steps(source)
        compact = max((step for step, name in steps.items() if name.endswith(".compact")), default=-1)
        held = (self.storage.read(f"sources/{source}/{steps[step]}") for step in sorted(steps) if step >= compact)
        return [line for text in held for line in text.decode().splitlines()[1:] if line.strip()]

    def last_step(self, source: int) -> int:
        return max(self._steps(source), default=-1)

    def _numbers(self, kind: str) -> list[int]:
        return sorted(int(name) for name in self.storage.names(kind) if name.isdigit())

    def _write(self, name: str, lines: list[str], *, durable: bool = True) -> None:
        self.storage.write(name, b"\n".join([VERSION, *(line.encode() for line in lines)]), durable=durable)


def _json(body: Any) -> str:
    return json.dumps(body, separators=(",", ":"))


def _uri(path: Path) -> str:
    """The path as Hadoop writes it, without escaping letters of other scripts."""
    return "file://" + "".join(c if ord(c) > 127 else quote(c, safe="/_-!.~'()*:@&=+$,;") for c in str(path))


def path_of_uri(uri: str) -> Path:
    if "://" in uri and not uri.startswith("file:"):
        raise StreamError(f"{uri} is where only Spark can read: run the stream on Spark")
    return Path(unquote(uri.removeprefix("file:").removeprefix("//")))
