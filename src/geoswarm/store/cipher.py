"""The cipher round what rests on disk: AES-256-GCM, in chunks whose order and end are part of what is verified.

Knows nothing of folders (`vault.py`) nor of where a key comes from (`key_source.py`). Every file has a key of its own,
derived from the engine's key and a salt, so that nonces can count chunks and never repeat:

    ┌────────┬─────────┬─────────┬──────────────────────┬─────┬──────────────────────────┐
    │ magic  │ key id  │ salt    │ chunk 0: 1 MiB + tag │ ... │ last chunk, marked as it │
    │ 8 bytes│ 8 bytes │ 16 bytes│                      │     │                          │
    └────────┴─────────┴─────────┴──────────────────────┴─────┴──────────────────────────┘

The head is not encrypted: a reader sees that a file is encrypted, and with which key, without having the key. A file's
name belongs to what is verified, so that one file cannot replace another. Thesis §5: moved state is encrypted.
"""

import base64
import hashlib
import hmac
import mmap
import os
from collections.abc import Iterable, Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

KEY_BYTES = 32
MAGIC = b"GEOCRPT1"
"""The first bytes of an encrypted file; they include the version of the format."""
ID_BYTES, SALT_BYTES, NONCE_BYTES, TAG_BYTES = 8, 16, 12, 16
HEAD_BYTES = len(MAGIC) + ID_BYTES + SALT_BYTES
CHUNK_BYTES = 1 << 20
"""Bytes of plain text in a chunk. Larger is no faster, and a whole chunk is read before any of it is trusted."""


class Cipher:
    """Encrypts and decrypts with one key. The key is never printed or sent to other processes."""

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(key)}")
        self._key = key
        self.id = hmac.digest(key, b"geoswarm key id", hashlib.sha256)[:ID_BYTES].hex()
        """A keyed hash that identifies the key and reveals nothing of it."""

    def __repr__(self) -> str:
        return f"Cipher(key {self.id})"

    def __reduce__(self) -> tuple[str]:
        raise TypeError("a key is never sent: send the KeySource, and let the other side read it")

    def encrypt(self, name: str, pieces: Iterable[bytes | memoryview]) -> Iterator[bytes]:
        salt = os.urandom(SALT_BYTES)
        yield MAGIC + bytes.fromhex(self.id) + salt
        box, bound = self._box(b"file", salt), MAGIC + name.encode()
        held: bytes | memoryview | None = None  # the chunk before this one: the last chunk is marked
        number = 0
        for chunk in _cut(pieces):
            if held is not None:
                yield box.encrypt(_nonce(number, False), held, bound)
                number += 1
            held = chunk
        yield box.encrypt(_nonce(number, True), held or b"", bound)

    def decrypt(self, name: str, data: memoryview) -> memoryview:
        """The plain text, read-only and aligned to a page. Raises ValueError if any of it is not what was written under
        this name. The caller has checked `key_id_of` before."""
        salt, body = data[HEAD_BYTES - SALT_BYTES : HEAD_BYTES], data[HEAD_BYTES:]
        sealed = CHUNK_BYTES + TAG_BYTES
        count = max(1, -(-len(body) // sealed))
        size = len(body) - count * TAG_BYTES
        if size < (count - 1) * CHUNK_BYTES:
            raise ValueError("it is cut short")
        box, bound = self._box(b"file", bytes(salt)), MAGIC + name.encode()
        # Private pages: encrypted files cannot share them with other processes through the page cache.
        pages = mmap.mmap(-1, max(1, size), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        plain = memoryview(pages)[:size]
        try:
            for number in range(count):
                into = plain[number * CHUNK_BYTES : (number + 1) * CHUNK_BYTES]
                chunk = body[number * sealed : (number + 1) * sealed]
                box.decrypt_into(_nonce(number, number == count - 1), chunk, bound, into)
        except InvalidTag:
            raise ValueError("it was changed, cut short, or put in the place of another file") from None
        return plain.toreadonly()

    def encrypt_line(self, name: str, number: int, text: bytes) -> bytes:
        """Encrypt one line of a file that grows by lines; it can be decrypted only as this line of this file."""
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._box(b"line", name.encode()).encrypt(nonce, text, MAGIC + str(number).encode())
        return b"%d:%s" % (number, base64.b64encode(nonce + sealed))

    def decrypt_line(self, name: str, line: bytes) -> tuple[int, bytes]:
        """The line's number and text. Raises ValueError if it is not what was written at this number of this file."""
        number, _, packed = line.partition(b":")
        sealed = base64.b64decode(packed, validate=True)
        try:
            bound = MAGIC + str(int(number)).encode()
            box = self._box(b"line", name.encode())
            return int(number), box.decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], bound)
        except InvalidTag:
            raise ValueError("it was torn, changed or moved") from None

    def _box(self, use: bytes, salt: bytes) -> AESGCM:
        return AESGCM(HKDF(hashes.SHA256(), KEY_BYTES, salt, b"geoswarm " + use).derive(self._key))


def key_id_of(head: bytes | memoryview) -> str | None:
    """The id of the key that a file is encrypted with, from its first bytes; None if it is not encrypted."""
    head = bytes(head[:HEAD_BYTES])
    return head[len(MAGIC) : len(MAGIC) + ID_BYTES].hex() if head.startswith(MAGIC) else None


def _nonce(number: int, is_last: bool) -> bytes:
    return number.to_bytes(NONCE_BYTES - 1, "big") + bytes([is_last])


def _cut(pieces: Iterable[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """The same bytes in chunks of CHUNK_BYTES, the last one shorter. A chunk within one piece is not copied."""
    rest = bytearray()
    for piece in pieces:
        view = memoryview(piece).cast("B")
        if rest:
            missing = CHUNK_BYTES - len(rest)
            rest += view[:missing]
            view = view[missing:]
            if len(rest) == CHUNK_BYTES:
                yield bytes(rest)
                rest.clear()
        while len(view) >= CHUNK_BYTES:
            yield view[:CHUNK_BYTES]
            view = view[CHUNK_BYTES:]
        rest += view
    if rest:
        yield bytes(rest)
