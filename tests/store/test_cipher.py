"""What is encrypted comes back as it was, or not at all; and a key is nowhere but in its file."""

import base64
import os
import pickle
import stat
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest

from geoswarm.errors import MachineError, SettingsError
from geoswarm.store.cipher import CHUNK_BYTES, HEAD_BYTES, TAG_BYTES, Cipher, key_id_of
from geoswarm.store.key_source import KEY, KEY_FILE, KeySource, make_key_file

CIPHER = Cipher(bytes(range(32)))
CHUNK = CHUNK_BYTES + TAG_BYTES


def encrypt(data: bytes, name: str = "a/b", cipher: Cipher = CIPHER) -> bytes:
    return b"".join(cipher.encrypt(name, [data]))


def decrypt(data: bytes, name: str = "a/b", cipher: Cipher = CIPHER) -> bytes:
    return bytes(cipher.decrypt(name, memoryview(data)))


@pytest.mark.parametrize("size", [0, 1, CHUNK_BYTES - 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 3_200_017])
def test_any_size_in_any_pieces_comes_back(size: int) -> None:
    data = os.urandom(size)
    for cuts in ([], [size // 3], [1, 2, CHUNK_BYTES, CHUNK_BYTES + 7], [0, 0, size]):
        pieces = [memoryview(data)[a:b] for a, b in pairwise(sorted([0, *(min(cut, size) for cut in cuts), size]))]
        assert decrypt(b"".join(CIPHER.encrypt("a/b", pieces))) == data


def test_the_same_file_is_never_encrypted_the_same_way_twice() -> None:
    first, second = encrypt(b"flood"), encrypt(b"flood")
    assert first[HEAD_BYTES:] != second[HEAD_BYTES:]
    assert b"flood" not in first


def test_a_file_says_in_clear_with_which_key_it_is_encrypted() -> None:
    assert key_id_of(encrypt(b"x")) == CIPHER.id
    assert key_id_of(b'{"seal":') is None
    assert Cipher(os.urandom(32)).id != CIPHER.id


THREE = bytes(range(256)) * 4096 + b"b" * CHUNK_BYTES + b"the end"


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d[:HEAD_BYTES],
        lambda d: d[: HEAD_BYTES + 3],
        lambda d: d[: HEAD_BYTES + CHUNK],
        lambda d: d[: HEAD_BYTES + 2 * CHUNK],
        lambda d: d[: HEAD_BYTES + 2 * CHUNK + 5],
        lambda d: d[:-1],
        lambda d: d + b"\0",
        lambda d: d + d[HEAD_BYTES:],
        lambda d: d[:HEAD_BYTES] + d[HEAD_BYTES + CHUNK : HEAD_BYTES + 2 * CHUNK] + d[HEAD_BYTES:][:CHUNK] + d[-23:],
        lambda d: d[:HEAD_BYTES] + d[HEAD_BYTES + CHUNK :],
        lambda d: d[:20] + bytes([d[20] ^ 1]) + d[21:],
        lambda d: d[:HEAD_BYTES] + bytes([d[HEAD_BYTES] ^ 128]) + d[HEAD_BYTES + 1 :],
        lambda d: d[:-1] + bytes([d[-1] ^ 1]),
    ],
)
def test_what_was_cut_swapped_or_changed_is_refused(damage: Callable[[bytes], bytes]) -> None:
    whole = encrypt(THREE)
    assert decrypt(whole) == THREE
    with pytest.raises(ValueError, match=r"cut short|changed"):
        decrypt(damage(whole))


def test_a_file_cannot_stand_in_for_another() -> None:
    with pytest.raises(ValueError, match="another file"):
        decrypt(encrypt(b"plan 3", "plans/3"), "plans/4")
    with pytest.raises(ValueError, match="another file"):
        decrypt(encrypt(b"plan 3"), cipher=Cipher(os.urandom(32)))


def test_a_line_stands_for_itself_at_its_number_of_its_file() -> None:
    line = CIPHER.encrypt_line("journal/1", 7, b"anastasia")
    assert CIPHER.decrypt_line("journal/1", line) == (7, b"anastasia")
    assert b"anastasia" not in line
    elsewhere = [
        ("journal/2", line),
        ("journal/1", b"8" + line[1:]),
        ("journal/1", line[:-8]),
        ("journal/1", line[:1]),
        ("journal/1", b'{"kind":"batch"}'),
        ("journal/1", b""),
    ]
    for name, other in elsewhere:
        with pytest.raises(ValueError, match=r".*"):
            CIPHER.decrypt_line(name, other)


def test_a_key_file_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    file = tmp_path / "key"
    made = make_key_file(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert KeySource(str(file)).cipher().id == made.id
    with pytest.raises(SettingsError, match="exists"):
        make_key_file(file)
    assert KeySource(str(file)).cipher().id == made.id


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_key_file_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "key"
    make_key_file(file)
    file.chmod(mode)
    with pytest.raises(MachineError, match="chmod 600"):
        KeySource(str(file)).cipher()


@pytest.mark.parametrize("text", ["", "c2hvcnQ=", "not base64 at all, but what somebody thought secret", "A" * 64])
def test_what_is_no_key_is_refused_without_being_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    file = tmp_path / "key"
    file.touch(mode=0o600)
    file.write_text(text)
    monkeypatch.setenv(KEY, text)
    for source in (KeySource(str(file)), KeySource()):
        with pytest.raises(MachineError, match="holds no key of 32 bytes") as raised:
            source.cipher()
        assert not text or text not in str(raised.value)
        assert raised.value.__cause__ is None


def test_a_missing_key_file_says_who_needs_it(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match="every machine of the cluster needs it"):
        KeySource(str(tmp_path / "none")).cipher()


def test_the_environment_is_the_switch(tmp_path: Path) -> None:
    assert KeySource.from_environment({}) is None
    assert KeySource.from_environment({KEY_FILE: "", KEY: ""}) is None
    assert KeySource.from_environment({KEY: "x"}) == KeySource()
    assert KeySource.from_environment({KEY_FILE: "k"}) == KeySource(str(Path("k").absolute()))
    with pytest.raises(SettingsError, match="both"):
        KeySource.from_environment({KEY_FILE: "k", KEY: "x"})


def test_a_key_shows_neither_in_print_nor_on_the_wire(tmp_path: Path) -> None:
    file = tmp_path / "key"
    made = make_key_file(file)
    key = base64.b64decode(file.read_bytes())
    source = KeySource(str(file))
    for shown in (repr(made), str(made), repr(source), str(source), str(pickle.dumps(source)), made.id):
        for secret in (key.hex(), base64.b64encode(key).decode(), str(key)[2:-1]):
            assert secret not in shown
    assert key not in pickle.dumps(source)
    with pytest.raises(TypeError, match="never sent"):
        pickle.dumps(made)
