"""Where the key comes from: a file that only its owner reads, or the environment. Never the command line.

This is the one switch of encryption. Without GEOSWARM_KEY_FILE and GEOSWARM_KEY nothing is encrypted; with one of them
everything is: the checkpoint (`storage.py`), and what Spark sends and spills (`run/spark/session.py`). A source is only
a name, and may be printed, logged and sent to workers, who read the key from the same place by themselves.
"""

import base64
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from geoswarm.errors import MachineError, SettingsError
from geoswarm.store.cipher import KEY_BYTES, Cipher

KEY_FILE, KEY = "GEOSWARM_KEY_FILE", "GEOSWARM_KEY"
FILE_BYTES_MAX = 4096
"""A key takes 45 bytes; a larger file is no key."""


@dataclass(frozen=True)
class KeySource:
    file: str | None = None
    """The path of the key file; None for the environment variable GEOSWARM_KEY."""

    @staticmethod
    def from_environment(environ: Mapping[str, str] | None = None) -> "KeySource | None":
        """The source that the environment names; None if encryption is off."""
        environ = os.environ if environ is None else environ
        file, key = environ.get(KEY_FILE), environ.get(KEY)
        if file and key:
            raise SettingsError(f"both {KEY_FILE} and {KEY} are set: keep one of them, the file if you can")
        if file:
            return KeySource(str(Path(file).absolute()))  # workers have a working folder of their own
        return KeySource() if key else None

    def __str__(self) -> str:
        return f"the key file {self.file}" if self.file else f"the variable {KEY}"

    def cipher(self) -> Cipher:
        """Read the key. No error message contains what was read."""
        text = self._read()
        try:
            key = base64.b64decode(text.strip(), validate=True)
        except ValueError:
            key = b""
        if len(key) != KEY_BYTES:
            raise MachineError(f"{self} holds no key of {KEY_BYTES} bytes in base64: make one with `geoswarm key FILE`")
        return Cipher(key)

    def _read(self) -> bytes:
        if self.file is None:
            return os.environ.get(KEY, "").encode()
        path = Path(self.file)
        try:
            with path.open("rb") as file:
                facts = os.fstat(file.fileno())
                if stat.S_IMODE(facts.st_mode) & 0o077:
                    raise MachineError(f"{self} can be read by others: chmod 600 {path}, and consider a new key")
                return file.read(FILE_BYTES_MAX)
        except FileNotFoundError:
            raise MachineError(
                f"{self} is not there: every machine of the cluster needs it at the same path, or {KEY} instead"
            ) from None
        except PermissionError:
            raise MachineError(
                f"{self} may not be read by this user: give it to the user that the engine runs as"
            ) from None
        except IsADirectoryError:
            raise MachineError(f"{self} is a folder: name the file in it that holds the key") from None


def make_key_file(path: Path) -> Cipher:
    """A new key, in a new file that only its owner can read."""
    key = os.urandom(KEY_BYTES)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise SettingsError(
            f"{path} exists: a key that is replaced takes its checkpoints along; choose another"
        ) from None
    with os.fdopen(handle, "wb") as file:
        os.fchmod(handle, 0o600)  # whatever the umask is
        file.write(base64.b64encode(key) + b"\n")
        file.flush()
        os.fsync(handle)
    return Cipher(key)
