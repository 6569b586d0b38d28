"""A schema registry by Confluent's protocol: which schema a message was written with, asked over HTTP by the tasks.

    a message   │ 0 │ number of the schema, 4 bytes │ what was written with it │

Each process asks for a schema once. A registry that does not answer is asked again for REGISTRY_S_MAX seconds; then
the batch fails with an error, and is run again at the next start. A schema that it does not have spoils its messages
only.
"""

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from functools import lru_cache
from typing import Any
from urllib.parse import quote

from geoswarm.errors import SettingsError, StreamError

MAGIC = 0
HEAD_BYTES = 5
"""The magic byte, and the number of the schema."""
REGISTRY_S_MAX = 30.0
"""Seconds in which a registry must answer: as long as one takes to start again."""
ANSWER_S_MAX = 5.0
PAUSE_S = 0.5
SCHEMA_BYTES_MAX = 16 << 20
NOT_FOUND = 404
REFUSED = (401, 403, 409, 422)
"""Answers that do not change by asking again."""


class UnreadableMessageError(ValueError):
    """A message is no such message; the text says why."""


def read_head(value: bytes) -> int:
    """The number of the schema of a message."""
    if len(value) < HEAD_BYTES or value[0] != MAGIC:
        raise UnreadableMessageError("it does not begin with a zero byte and the number of a schema in four more")
    return int.from_bytes(value[1:HEAD_BYTES], "big")


def check_address(url: str) -> str:
    if not url.startswith(("http://", "https://")):
        raise SettingsError(f'the registry {url!r} is no address: write registry = "http://HOST:PORT"')
    return url.rstrip("/")


class SchemaRegistry:
    """Asks one registry. It forgets nothing: a number means the same schema for ever."""

    def __init__(
        self, url: str, clock_s: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._url, self._clock_s, self._sleep = check_address(url), clock_s, sleep
        self._found: dict[str, Any] = {}

    def schema(self, number: int, *, serialized: bool = False) -> Any:
        """What the registry has for a number: its schema, schemaType and references. Raises UnreadableMessageError if
        it has none."""
        return self._ask(f"/schemas/ids/{number}{'?format=serialized' if serialized else ''}", f"schema {number}")

    def reference(self, subject: str, version: int, *, serialized: bool = False) -> Any:
        """The same for a schema that another one refers to."""
        end = "?format=serialized" if serialized else ""
        return self._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}{end}", f"{subject} {version}")

    def register(self, subject: str, schema: str) -> int:
        """The number of a schema of a subject, which is registered if it is new."""
        what = f"a number for the schema of {subject}"
        number = self._ask(f"/subjects/{quote(subject, safe='')}/versions", what, json.dumps({"schema": schema}))["id"]
        return int(number)

    def _ask(self, path: str, what: str, sent: str | None = None) -> Any:
        key = f"{path} {sent or ''}"
        if key not in self._found:
            self._found[key] = self._fetch(path, what, sent)
        return self._found[key]

    def _fetch(self, path: str, what: str, sent: str | None) -> Any:
        kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        request = urllib.request.Request(self._url + path, None if sent is None else sent.encode(), kind)
        began_s = self._clock_s()
        while True:
            try:
                with urllib.request.urlopen(request, timeout=ANSWER_S_MAX) as answer:
                    return json.loads(answer.read(SCHEMA_BYTES_MAX))
            except urllib.error.HTTPError as error:
                if error.code == NOT_FOUND:
                    raise UnreadableMessageError(f"the registry {self._url} has no {what}") from None
                why = f"HTTP {error.code}"
                if error.code in REFUSED:
                    raise StreamError(
                        f"the schema registry {self._url} refuses {what} ({why}): see whether it takes changes of this "
                        "kind (its compatibility), or send to another topic"
                    ) from None
            except (OSError, ValueError) as error:
                why = str(error)
            if self._clock_s() - began_s > REGISTRY_S_MAX:
                raise StreamError(
                    f"the schema registry {self._url} did not give {what} within {REGISTRY_S_MAX:.0f} s ({why}): see "
                    "whether it runs, and whether its address is right; the batch is run again at the next start"
                )
            self._sleep(PAUSE_S)


@lru_cache(maxsize=8)
def shared_registry(url: str) -> SchemaRegistry:
    """The one of this process."""
    return SchemaRegistry(url)
