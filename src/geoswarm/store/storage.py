"""Files that survive a crash: written whole or not at all, sealed with a checksum, mapped without a copy.

This file does not know what the files mean. A write is acknowledged after fsync, rename, and fsync of the folder; on an
object store a put is already atomic. Two shapes of file exist: a sealed JSON document, and a flat file of arrays
(`core/arrays/flat_arrays.py`). With a key (`key_source.py`) every file is encrypted on its way to the disk
(`vault.py`), and arrays are decrypted into memory instead of mapped.
"""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from geoswarm.core.arrays.flat_arrays import ArrayPieces, checksum, pack_pieces, unpack_arrays
from geoswarm.core.arrays.jit import Array
from geoswarm.errors import CorruptState, FencedOut, MachineError, SettingsError
from geoswarm.store import local_files
from geoswarm.store.cipher import HEAD_BYTES
from geoswarm.store.key_source import KeySource
from geoswarm.store.vault import Chunks, Vault

FIRST = "identity.json"
"""A checkpoint's oldest file: its first bytes show whether all files are encrypted, and with which key."""
READ_BYTES_MAX = 1 << 16
"""Files of arrays up to this size are read, not mapped: a process may have no more than 65,530 mappings."""
FULL = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
"""Errors of a process, or a machine, that has as many files open or mapped as it may."""


class Storage:
    """A folder that every executor reaches: a local path, or any address that pyarrow.fs understands."""

    def __init__(
        self, root: str, cache: str | None = None, *, key: KeySource | None = None, encrypts: bool = True
    ) -> None:
        """`cache` is where remote files are kept for mapping; by default a folder of this user. Without a `key`, the
        environment's is used, if there is one. A folder of files that others write never `encrypts`."""
        self._remote: pafs.FileSystem | None = None
        if "://" in root and not root.startswith("file://"):
            if "@" in root.split("://")[1].split("/")[0]:
                raise SettingsError(
                    "keep keys out of the checkpoint's address: it is logged; set them in the environment"
                )
            self.root = root
            self._remote, self._base = pafs.FileSystem.from_uri(root)
            self._cache = Path(cache or Path(tempfile.gettempdir()) / f"geoswarm-{os.getuid()}") / checksum(
                root.encode()
            )
        else:  # absolute, because workers have a working folder of their own
            self.root = self._base = str(Path(root.removeprefix("file://")).absolute())
        self.vault = Vault(self.root, (key or KeySource.from_environment()) if encrypts else None)
        if encrypts:
            self._check_key()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (self.root, self.vault.key)

    @property
    def is_remote(self) -> bool:
        return self._remote is not None

    def path(self, name: str) -> str:
        return f"{self._base}/{name}"

    def uri(self, name: str) -> str:
        """The address of a file for Spark, with its scheme."""
        if self._remote is None:
            return self.path(name)
        return f"{self.root.split('?')[0].rstrip('/').replace('s3://', 's3a://', 1)}/{name}"

    def address(self, name: str) -> str:
        """The address of a folder, from which another `Storage` can be made."""
        place, mark, options = self.root.partition("?")
        return f"{place.rstrip('/')}/{name}{mark}{options}"

    def write(self, name: str, *chunks: bytes | memoryview, durable: bool = True) -> None:
        """Write a file, whole or not at all. If it is not `durable`, a power cut may lose it."""
        self._put(name, self.vault.encrypt(name, chunks), durable)

    def create(self, name: str, *chunks: bytes | memoryview) -> None:
        """As `write`, but an existing file is not replaced: of two engines that try, one wins."""
        try:
            if self._remote is None:
                local_files.publish(Path(self.path(name)), self.vault.encrypt(name, chunks), os.link)
            elif self.exists(name):
                raise FileExistsError(name)
            else:
                self.write(name, *chunks)
        except FileExistsError:
            raise FencedOut(f"{name} was written by another engine on {self.root}: stop one of the two") from None

    def read(self, name: str) -> bytes:
        held = self.read_as_is(name)
        plain = self.vault.decrypt(name, memoryview(held))
        return held if plain.obj is held else bytes(plain)

    def exists(self, name: str) -> bool:
        if self._remote is None:
            return Path(self.path(name)).exists()
        return bool(self._remote.get_file_info(self.path(name)).type != pafs.FileType.NotFound)

    def names(self, folder: str) -> list[str]:
        """The files directly in a folder, sorted, without those that are still being written."""
        if self._remote is None:
            try:
                found = [entry.name for entry in os.scandir(self.path(folder)) if entry.is_file()]
            except FileNotFoundError:
                return []
        else:
            selector = pafs.FileSelector(self.path(folder), allow_not_found=True)
            found = [i.base_name for i in self._remote.get_file_info(selector) if i.type == pafs.FileType.File]
        return sorted(name for name in found if not name.startswith("."))

    def folders(self, folder: str) -> list[str]:
        """The folders directly in a folder, sorted."""
        if self._remote is None:
            try:
                return sorted(entry.name for entry in os.scandir(self.path(folder)) if entry.is_dir())
            except FileNotFoundError:
                return []
        selector = pafs.FileSelector(self.path(folder), allow_not_found=True)
        infos = self._remote.get_file_info(selector)
        return sorted(info.base_name for info in infos if info.type == pafs.FileType.Directory)

    def remove(self, name: str) -> None:
        if self._remote is None:
            Path(self.path(name)).unlink(missing_ok=True)
        elif self.exists(name):
            self._remote.delete_file(self.path(name))

    def remove_folder(self, name: str) -> None:
        """Remove a folder and its files, incomplete ones of killed processes included."""
        if self._remote is None:
            shutil.rmtree(self.path(name), ignore_errors=True)
        for file in self.names(name):
            self.remove(f"{name}/{file}")

    def sweep(self, folder: str, name: str = "") -> None:
        """Remove incomplete files of killed processes: those whose name is to begin with `name`, or all of a folder
        that no other process writes to."""
        if self._remote is None:
            for file in Path(self.path(folder)).glob(f".{name}*"):
                file.unlink(missing_ok=True)

    def make_durable(self, names: Iterable[str]) -> None:
        """Flush files that were written without being `durable`."""
        if self._remote is None:
            local_files.make_durable(Path(self.path(name)) for name in names)

    def local(self, name: str) -> Path:
        """A local file with the content of `name`, which must never change: fetched once per host if remote."""
        if self._remote is None:
            return Path(self.path(name))
        local_files.claim_folder(self._cache.parent)
        cached = self._cache / name
        if not cached.exists():
            # An encrypted file stays encrypted on this disk, too.
            local_files.publish(cached, [self.read_as_is(name)], os.replace)
        return cached

    def forget(self, name: str) -> None:
        """Drop a host's cached copy, so that the next use fetches it again."""
        if self._remote is not None:
            (self._cache / name).unlink(missing_ok=True)

    def forget_others(self, folder: str, names: Collection[str]) -> None:
        """Drop a host's cached copies of the files in a folder, but for some."""
        if self._remote is not None:
            for copy in (self._cache / folder).glob("[!.]*"):
                if copy.name not in names:
                    copy.unlink(missing_ok=True)

    # -- as it lies on the disk

    def read_as_is(self, name: str, start: int = 0) -> bytes:
        try:
            if self._remote is None:
                with Path(self.path(name)).open("rb", buffering=0) as local:
                    local.seek(start)
                    return local.readall()
            with self._remote.open_input_file(self.path(name)) as file:
                file.seek(start)
                return bytes(file.read())
        except FileNotFoundError:
            raise CorruptState(f"{name} is missing from {self.root}: restore it from a backup") from None

    def write_as_is(self, name: str, data: bytes) -> None:
        self._put(name, [data], durable=True)

    def append_as_is(self, name: str, data: bytes) -> None:
        """Append to a file; object stores cannot."""
        path = Path(self.path(name))
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(data)

    def _put(self, name: str, chunks: Chunks, durable: bool) -> None:
        if self._remote is not None:
            self._remote.create_dir(self.path(name).rpartition("/")[0], recursive=True)
            with self._remote.open_output_stream(self.path(name)) as out:
                for chunk in chunks:
                    out.write(chunk)
            self.forget(name)  # a draft that failed may have had a file of this name
            return
        local_files.publish(Path(self.path(name)), chunks, os.replace, durable)

    def _check_key(self) -> None:
        """Refuse a key that is not the checkpoint's, before anything is written with it."""
        try:
            if self._remote is None:
                with Path(self.path(FIRST)).open("rb") as local:
                    head = local.read(HEAD_BYTES)
            elif self.exists(FIRST):
                with self._remote.open_input_file(self.path(FIRST)) as file:
                    head = bytes(file.read(HEAD_BYTES))
            else:
                return
        except (FileNotFoundError, NotADirectoryError):
            return
        self.vault.check(FIRST, head)

    # -- sealed documents

    def write_document(self, name: str, body: Mapping[str, Any], *, replace: bool = True) -> str:
        """Returns the seal."""
        text = json.dumps(body, sort_keys=True, separators=(",", ":"))
        seal = checksum(text.encode())
        sealed = f'{{"seal":"{seal}","body":{text}}}\n'.encode()
        if replace:
            self.write(name, sealed)
        else:
            self.create(name, sealed)
        return seal

    def read_document(self, name: str) -> dict[str, Any]:
        return self.read_sealed(name)[0]

    def read_sealed(self, name: str) -> tuple[dict[str, Any], str]:
        """The document and its seal."""
        raw = self.read(name)
        try:
            document = json.loads(raw)
            body: dict[str, Any] = document["body"]
            seal = checksum(json.dumps(body, sort_keys=True, separators=(",", ":")).encode())
            intact = document["seal"] == seal
        except (ValueError, KeyError, TypeError):
            intact = False
        if not intact:
            raise CorruptState(
                f"{name} ({len(raw)} bytes) does not match its checksum: it was cut short or changed on disk; "
                f"restore it from a backup of {self.root}"
            )
        return body, seal

    # -- flat files of arrays

    def write_arrays(self, name: str, arrays: Mapping[str, Array], *, durable: bool = True) -> int:
        """Returns the bytes written."""
        return self.write_pieces(name, ((key, [array]) for key, array in arrays.items()), durable=durable)

    def write_pieces(self, name: str, arrays: ArrayPieces, *, durable: bool = True) -> int:
        """The same, for arrays that are made piece by piece: no more than a piece of them is in memory."""
        size = 0

        def counted() -> Iterator[bytes | memoryview]:
            nonlocal size
            for chunk in pack_pieces(arrays):
                size += len(chunk)
                yield chunk

        self._put(name, self.vault.encrypt(name, counted()), durable)
        return size

    def map_arrays(self, name: str) -> dict[str, Array]:
        """Read-only arrays over the mapped file. Its checksum is verified on the way: call it once per process."""
        path = self.local(name)
        try:
            mapped = _map(path)
        except FileNotFoundError:
            raise CorruptState(f"{name} is missing from {self.root}: restore it from a backup") from None
        except OSError as why:
            if why.errno not in FULL:
                raise
            raise MachineError(
                f"{name} of {self.root} cannot be opened ({why.strerror}): this process has as many files open, or "
                "mapped, as it may; raise `ulimit -n` and `sysctl vm.max_map_count`, or ask for a shorter time"
            ) from None
        if not mapped:
            raise CorruptState(f"{name} is empty: restore it from a backup of {self.root}")
        try:
            return unpack_arrays(self.vault.decrypt(name, mapped))
        except CorruptState:
            self.forget(name)
            raise
        except ValueError as why:
            self.forget(name)
            raise CorruptState(f"{name}: {why}; restore it from a backup of {self.root}") from None


def _map(path: Path) -> memoryview:
    """The content of a file. It is mapped by Arrow, since Python's mappings keep a descriptor each (until 3.13), a
    process may often have no more than 1024, and keyed state and kept events may be in thousands of files."""
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size <= READ_BYTES_MAX:
            return memoryview(file.read())
    try:
        with pa.memory_map(str(path)) as mapped:
            return memoryview(mapped.read_buffer()).cast("B")
    except OSError as why:
        if why.errno is not None:
            raise
        raise OSError(errno.ENOMEM, "no room for another mapping") from why  # Arrow says so in words only


def _reopen(root: str, key: KeySource | None) -> Storage:
    """Open a storage in a worker: the driver has checked the checkpoint, and decides whether there is a key."""
    storage = Storage(root, encrypts=False)
    storage.vault = Vault(storage.root, key)
    return storage
