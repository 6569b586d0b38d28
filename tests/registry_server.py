"""A schema registry on loopback, by Confluent's protocol, for tests."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from geoswarm.run.schema_registry import shared_registry


class Registry(ThreadingHTTPServer):
    """A schema registry: what is asked for by its protocol, from a table of answers."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.failures = 0
        super().__init__(("127.0.0.1", 0), _Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: Registry

    def do_POST(self) -> None:
        """A schema is registered: a new one gets the next number, and one that is known its own."""
        sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        known = self.server.answers
        if isinstance(known.get(self.path), int):
            self.do_GET()
            return
        numbers = {known[path]["schema"]: int(path.rsplit("/", 1)[1]) for path in known if path.startswith("/schemas")}
        number = numbers.get(sent["schema"], 1 + len(numbers))
        known[f"/schemas/ids/{number}"] = {"schema": sent["schema"]}
        known[self.path] = {"id": number}
        self.do_GET()

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        found = self.server.answers.get(self.path)
        if self.server.failures:
            self.server.failures -= 1
            self.send_error(503)
        elif found is None or isinstance(found, int):
            self.send_error(found or 404)
        else:
            body = json.dumps(found).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def running_registry() -> Iterator[Registry]:
    with Registry() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
    shared_registry.cache_clear()
