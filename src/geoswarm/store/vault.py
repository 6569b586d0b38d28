"""One folder's key: what is written there is encrypted, and what is read there must be, with the same key.

All files of a checkpoint are encrypted or none is, so that a plain file among encrypted ones is never
trusted. A folder without a key costs one comparison per read. `cipher.py` has the format, `key_source.py` the key.
"""

from collections.abc import Iterable

from geoswarm.errors import CorruptState, MachineError, SettingsError
from geoswarm.store.cipher import Cipher, key_id_of
from geoswarm.store.key_source import KEY_FILE, KeySource

Chunks = Iterable[bytes | memoryview]


class Vault:
    def __init__(self, root: str, key: KeySource | None) -> None:
        """Without a `key` nothing is encrypted."""
        self._root, self.key = root, key
        self._cipher: Cipher | None = key.cipher() if key else None

    def encrypt(self, name: str, chunks: Chunks) -> Chunks:
        return chunks if self._cipher is None else self._cipher.encrypt(name, chunks)

    def decrypt(self, name: str, data: memoryview) -> memoryview:
        """The plain text: the same memory where nothing is encrypted, else a copy."""
        held = key_id_of(data)
        if self._cipher is None:
            self._refuse_other_key(name, held)
            return data
        if held != self._cipher.id:  # the checkpoint's own key was right (`check`)
            what = "is not encrypted" if held is None else f"names another key, {held}"
            raise CorruptState(
                f"{name} ({len(data)} bytes) {what}, where all of {self._root} is encrypted with {self._cipher.id}: "
                "it is damaged, or was put there; restore it from a backup"
            )
        try:
            return self._cipher.decrypt(name, data)
        except ValueError as why:
            raise CorruptState(
                f"{name} ({len(data)} bytes) cannot be decrypted: {why}; restore it from a backup of {self._root}"
            ) from None

    def encrypt_line(self, name: str, number: int, line: bytes) -> bytes:
        return line if self._cipher is None else self._cipher.encrypt_line(name, number, line)

    def decrypt_lines(self, name: str, lines: list[bytes]) -> list[bytes]:
        """The lines that are as they were written, in order; the others are left out."""
        if self._cipher is None:
            return lines
        plain, newest = [], -1
        for line in lines:
            try:
                number, text = self._cipher.decrypt_line(name, line)
            except ValueError:
                continue  # cut short by a crash, or changed
            if number > newest:  # else it is a copy of an earlier line
                plain.append(text)
                newest = number
        return plain

    def check(self, name: str, head: bytes) -> None:
        """Refuse a key that is not the one the checkpoint was made with, by the head of its first file."""
        held = key_id_of(head)
        self._refuse_other_key(name, held)
        if held is None and self._cipher is not None and head.startswith(b"{"):
            raise SettingsError(
                f"checkpoint {self._root} is not encrypted, and {self.key} asks for it: take the key away, or make "
                "a new checkpoint with it and load the subscriptions there"
            )

    def _refuse_other_key(self, name: str, held: str | None) -> None:
        """This is no CorruptState: nothing is damaged, and nothing must be repaired."""
        if held is None or (self._cipher is not None and self._cipher.id == held):
            return
        if self._cipher is None:
            raise MachineError(
                f"{name} of {self._root} is encrypted, with key {held}, and there is no key: "
                f"set {KEY_FILE} to the file that holds it"
            )
        raise MachineError(
            f"{name} of {self._root} is encrypted with key {held}, and {self.key} holds key {self._cipher.id}: "
            "give the one that the checkpoint was made with"
        )
