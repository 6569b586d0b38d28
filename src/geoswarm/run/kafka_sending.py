"""Send rows to Kafka from the task that makes them: a message for each (`message_writing.py`), with a key and headers.

The producer is idempotent: a message that it sends again itself is in the topic once. Every message of a batch says
which batch it is of, of which checkpoint; a batch that comes again after a crash has the same headers and the same
version. What could not be delivered fails the task.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from geoswarm.errors import SettingsError, StreamError
from geoswarm.flow.stages.task import Body
from geoswarm.model import VERSION
from geoswarm.run.kafka_client import client_settings, import_client
from geoswarm.run.message_writing import SentAs

DELIVERY_S_MAX = 60
"""Seconds in which a message must be delivered, unless the options set `kafka.delivery.timeout.ms`."""
SENT = pa.schema([pa.field("messages", pa.int64(), nullable=False)])
"""What a task gives that sent messages."""
CHECKPOINT_HEADER, BATCH_HEADER, VERSION_HEADER = "geoswarm-checkpoint", "geoswarm-batch", "geoswarm-version"

_producers: dict[str, Any] = {}
"""Those of this process, which serves many batches: by their settings, none of which may have failed."""


def producer_settings(options: Mapping[str, str]) -> dict[str, Any]:
    """With the defaults of Java's client, which chooses the same partition for the same key."""
    return {
        "enable.idempotence": True,
        "partitioner": "murmur2_random",
        "delivery.timeout.ms": DELIVERY_S_MAX * 1000,
        "linger.ms": 5,
        "log_level": 0,
        **client_settings(options),
        "delivery.report.only.error": True,
    }


def check_options(options: Mapping[str, str]) -> None:
    """Raises SettingsError where messages cannot be sent without Spark."""
    _check(tuple(sorted(options.items())))


@lru_cache(maxsize=16)
def _check(options: tuple[tuple[str, str], ...]) -> None:
    kafka = import_client()
    try:
        kafka.Producer(producer_settings(dict(options)))
    except kafka.KafkaException as why:
        raise SettingsError(f"the Kafka client does not take these settings: {why.args[0].str()}") from why


def send_rows(options: Mapping[str, str], key_by: Sequence[str], headers: Mapping[str, str], schema: pa.Schema) -> Body:
    """A message for each row, keyed by the first of the columns `key_by` that exists and is not null."""
    settings, topic, form = producer_settings(options), options["topic"], SentAs.of(options)
    keys = [name for name in key_by if name in schema.names]

    def run(number: int, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sending = _Sending(settings, topic, form)
        try:
            for batch in batches:
                sending.add(batch, keys, headers)
            sending.flush()
        except BaseException:
            sending.give_up()
            raise
        yield pa.record_batch([pa.array([sending.sent])], schema=SENT)

    return run


class _Sending:
    """The messages of one task."""

    def __init__(self, settings: dict[str, Any], topic: str, form: SentAs) -> None:
        self._settings, self._topic, self._form, self.sent = settings, topic, form, 0
        self._errors: list[str] = []
        name = repr(settings)
        if name not in _producers:
            _producers[name] = import_client().Producer(settings)
        self._name, self._producer = name, _producers[name]

    def add(self, batch: pa.RecordBatch, keys: Sequence[str], headers: Mapping[str, str]) -> None:
        if not len(batch):
            return
        named = [batch.column(name).cast(pa.string()) for name in keys]
        given: list[Any] = pc.coalesce(*named).to_pylist() if named else [None] * len(batch)
        own = [*headers.items(), *self._form.headers.items()]
        values = self._form.write(batch, self._topic, headers.get(CHECKPOINT_HEADER, ""), headers.get(BATCH_HEADER, ""))
        if VERSION in batch.schema.names:
            own.append((VERSION_HEADER, str(batch.column(VERSION)[0])))
        produce, note = self._producer.produce, self._note
        for key, value in zip(given, values, strict=True):
            while True:
                try:
                    produce(self._topic, value, key, on_delivery=note, headers=own)
                    break
                except BufferError:  # more than the producer holds at once
                    self._producer.poll(0.1)
                    self._raise_errors()
        self.sent += len(batch)
        self._producer.poll(0)
        self._raise_errors()

    def flush(self) -> None:
        """Wait until all are delivered, or have failed, which takes no longer than `delivery.timeout.ms`."""
        self._producer.flush()
        self._raise_errors()

    def give_up(self) -> None:
        """Nothing of a task that failed may be sent later, when the next batch flushes."""
        _producers.pop(self._name, None)
        self._producer.purge()
        self._producer.flush(1)

    def _note(self, error: Any, message: Any) -> None:
        if error is not None:
            self._errors.append(error.str())

    def _raise_errors(self) -> None:
        if self._errors:
            raise StreamError(
                f"Kafka at {self._settings.get('bootstrap.servers')} did not take {len(self._errors)} messages for "
                f"topic {self._topic}: {self._errors[0]}: see whether the broker runs and has the topic"
            )
