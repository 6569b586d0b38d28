"""Files that survive a crash: written whole or not at all, sealed with a checksum, mapped without a copy.

Knows nothing of what the files mean. A write is acknowledged after fsync, rename, and fsync of the folder; on an
object store a put is already atomic. Two shapes of file exist: a sealed JSON document, and a flat file of arrays
(`flat_arrays.py`). With a key (`key_source.py`) every file is encrypted on its way to the disk (`vault.py`), and arrays
are decrypted into memory instead of mapped.
"""

import json
import mmap
import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from geoswarm.core.arrays.flat_arrays import checksum, pack_arrays, unpack_arrays
from geoswarm.core.arrays.jit import Array
from geoswarm.errors import CorruptState, FencedOut, SettingsError
from geoswarm.store.cipher import HEAD_BYTES
from geoswarm.store.key_source import KeySource
from geoswarm.store.vault import Chunks, Vault

FIRST = "identity.json"
"""A checkpoint's oldest file: how it begins says whether all of them are encrypted, and with which key."""


class Storage:
    """A folder that every executor reaches: a local path, or any address that pyarrow.fs understands."""

    def __init__(
        self, root: str, cache: str | None = None, *, key: KeySource | None = None, encrypts: bool = True
    ) -> None:
        """`cache` is where remote files are kept for mapping; by default a folder of this user's. Without a `key` it is
        the environment's, if that has one; a folder of somebody else's files never `encrypts`."""
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
        return _reopened, (self.root, self.vault.key)

    @property
    def is_remote(self) -> bool:
        return self._remote is not None

    def path(self, name: str) -> str:
        return f"{self._base}/{name}"

    def uri(self, name: str) -> str:
        """The same for Spark, which wants the scheme back."""
        if self._remote is None:
            return self.path(name)
        return f"{self.root.split('?')[0].rstrip('/').replace('s3://', 's3a://', 1)}/{name}"

    def address(self, name: str) -> str:
        """The same for another `Storage` of what is in a folder."""
        place, mark, options = self.root.partition("?")
        return f"{place.rstrip('/')}/{name}{mark}{options}"

    def write(self, name: str, *chunks: bytes | memoryview, durable: bool = True) -> None:
        """Not `durable`: seen whole or not at all by other processes, but a power cut may lose it."""
        self._put(name, self.vault.encrypted(name, chunks), durable)

    def create(self, name: str, *chunks: bytes | memoryview) -> None:
        """As `write`, but refuses to replace: of two engines that try, one wins."""
        try:
            if self._remote is None:
                _publish(Path(self.path(name)), self.vault.encrypted(name, chunks), os.link)
            elif self.exists(name):
                raise FileExistsError(name)
            else:
                self.write(name, *chunks)
        except FileExistsError:
            raise FencedOut(f"{name} was written by another engine on {self.root}: stop one of the two") from None

    def read(self, name: str) -> bytes:
        held = self.read_as_is(name)
        plain = self.vault.decrypted(name, memoryview(held))
        return held if plain.obj is held else bytes(plain)

    def exists(self, name: str) -> bool:
        if self._remote is None:
            return Path(self.path(name)).exists()
        return bool(self._remote.get_file_info(self.path(name)).type != pafs.FileType.NotFound)

    def names(self, folder: str) -> list[str]:
        """The files directly in a folder, sorted; those still being written are not among them."""
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
        """Remove a folder and its files, also what a killed process left half written in it."""
        if self._remote is None:
            shutil.rmtree(self.path(name), ignore_errors=True)
        for file in self.names(name):
            self.remove(f"{name}/{file}")

    def sweep(self, folder: str) -> None:
        """Remove what a killed process left half written in a folder that nobody else is writing to."""
        if self._remote is None:
            for file in Path(self.path(folder)).glob(".*"):
                file.unlink(missing_ok=True)

    def local(self, name: str) -> Path:
        """A local file with the content of `name`, which must never change: fetched once per host if remote."""
        if self._remote is None:
            return Path(self.path(name))
        _claim(self._cache.parent)
        cached = self._cache / name
        if not cached.exists():
            _publish(cached, [self.read_as_is(name)], os.replace)  # what is encrypted stays so on this disk, too
        return cached

    def forget(self, name: str) -> None:
        """Drop a host's cached copy, so that the next use fetches it again."""
        if self._remote is not None:
            (self._cache / name).unlink(missing_ok=True)

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
        """Not on object stores."""
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
        _publish(Path(self.path(name)), chunks, os.replace, durable)

    def _check_key(self) -> None:
        """Before anything is written by a process whose key is another than the checkpoint's."""
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

    def write_arrays(self, name: str, arrays: Mapping[str, Array]) -> int:
        """Returns the bytes written."""
        chunks = pack_arrays(arrays)
        self.write(name, *chunks)
        return sum(map(len, chunks))

    def map_arrays(self, name: str) -> dict[str, Array]:
        """Read-only arrays over the mapped file. Its checksum is verified on the way: call it once per process."""
        path = self.local(name)
        try:
            with path.open("rb") as file:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise CorruptState(f"{name} is missing from {self.root}: restore it from a backup") from None
        except ValueError:
            raise CorruptState(f"{name} is empty: restore it from a backup of {self.root}") from None
        try:
            return unpack_arrays(self.vault.decrypted(name, memoryview(mapped)))
        except CorruptState:
            self.forget(name)
            raise
        except ValueError as why:
            self.forget(name)
            raise CorruptState(f"{name}: {why}; restore it from a backup of {self.root}") from None


def _reopened(root: str, key: KeySource | None) -> Storage:
    """In a worker: the driver has looked at the checkpoint, and whether there is a key is not the worker's to say."""
    storage = Storage(root, encrypts=False)
    storage.vault = Vault(storage.root, key)
    return storage


def _claim(folder: Path) -> None:
    """A folder that nobody else can write to: what is cached in it is believed."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    held = folder.lstat()
    if held.st_uid != os.getuid() or not stat.S_ISDIR(held.st_mode):
        raise SettingsError(f"{folder} belongs to somebody else: remove it, or set TMPDIR to a folder of your own")
    if held.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        folder.chmod(0o700)


def _publish(path: Path, chunks: Chunks, place: Any, durable: bool = True) -> None:
    if not path.parent.is_dir():
        path.parent.mkdir(parents=True, exist_ok=True)
        if durable:
            _sync_folder(path.parent.parent)
    handle, temporary = tempfile.mkstemp(prefix=".", dir=path.parent)
    try:
        with os.fdopen(handle, "wb", buffering=0) as file:
            os.fchmod(handle, 0o644)  # workers may run as another user
            for chunk in chunks:
                rest = memoryview(chunk)
                while len(rest):
                    rest = rest[file.write(rest) :]
            if durable:
                os.fsync(file.fileno())
        place(temporary, path)
    finally:
        Path(temporary).unlink(missing_ok=True)  # gone already after a replace
    if durable:
        _sync_folder(path.parent)


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
