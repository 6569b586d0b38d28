"""Start a stream from settings, and follow it while it runs.

`settings_file.py` has checked the settings; `cli/` prints. What differs between the engines is in `launch_spark.py` and
`launch_local.py`; either is imported when a stream is built, not before.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from rich.console import Console

from geoswarm.config import KeyTuning
from geoswarm.flow.keyed.registry import OPERATORS
from geoswarm.run.registry import SINKS
from geoswarm.service.cli.settings_file import PipelineSettings
from geoswarm.service.cli.settings_sections import ClassSetting
from geoswarm.store.key_source import KEY_FILE

if TYPE_CHECKING:
    from geoswarm.run.engine import BaseEngine
    from geoswarm.run.side_stages import Stage
    from geoswarm.run.sinks import Sink
    from geoswarm.run.stream import Run
    from geoswarm.store.loading import LoadResult

LOOK_S = 0.25
"""Seconds between two looks at the journal while a stream runs."""


def build_engine(settings: PipelineSettings, *, local: bool = False) -> "BaseEngine":
    """An engine on Spark, or with `local` in this process, without Java."""
    if settings.encryption is not None:
        # In the environment, so that all files and processes that this process opens or starts use the key.
        os.environ[KEY_FILE] = settings.encryption.key_file
    engine: BaseEngine = _runner(local).build_engine(settings)
    return engine


def load(engine: "BaseEngine", settings: PipelineSettings, progress: Callable[[int, int], None]) -> "LoadResult | None":
    """Bulk-load the file of [subscriptions], if there is one. The engine skips files that it has loaded."""
    return engine.load(settings.subscriptions.path, progress) if settings.subscriptions else None


def start(engine: "BaseEngine", settings: PipelineSettings, terminal: Console, *, local: bool = False) -> "Run":
    """Start the stream. A console sink prints to `terminal`; `local` is the same as for `build_engine`."""
    sources = _runner(local).build_sources(settings)
    run: Run = cast(Any, engine).start(
        **sources,
        sink=_sink(settings.sink, terminal),
        stages=_stages(settings, terminal),
        aggregates=None if settings.aggregates is None else _sink(settings.aggregates.sink, terminal),
        every_s=settings.trigger.every_s,
        available_now=settings.trigger.available_now,
    )
    return run


def _runner(local: bool) -> Any:
    """The module that builds engines and sources of one kind; the other is not imported."""
    return import_module(f"geoswarm.service.{'launch_local' if local else 'launch_spark'}")


def _stages(settings: PipelineSettings, terminal: Console) -> "list[Stage]":
    from geoswarm.run.side_stages import Stage

    stages = []
    for _, stage in settings.all_stages:
        tuning = KeyTuning(executors=stage.executors, interval_s=stage.interval_s, **stage.tuning.model_dump())
        operator = OPERATORS.make(stage.operator.kind, stage.operator.options)
        stages.append(Stage(operator, _sink(stage.sink, terminal), on=stage.on, tuning=tuning))
    return stages


def _sink(sink: ClassSetting, terminal: Console) -> "Sink":
    """A console sink prints to the terminal."""
    made: Sink = SINKS.make(sink.kind, sink.options, terminal=terminal)
    return made


@contextmanager
def stop_on_signals() -> Iterator[threading.Event]:
    """An event that Ctrl-C or SIGTERM sets, so that the stream stops after its batch. A second signal does not wait.

    Without it PySpark's own handler would cancel the jobs of the current batch, and make it fail.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if asked.is_set():
            os._exit(130)
        asked.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def until_done(run: "Run", asked: threading.Event, look: Callable[[], None], seconds: float | None = None) -> None:
    """Call `look` until the stream ends, a stop is asked for, or the time is up. Raises the stream's error, if any."""
    ends_s = time.monotonic() + seconds if seconds is not None else None
    while not asked.is_set() and (ends_s is None or time.monotonic() < ends_s):
        if not run.is_active:
            run.wait()  # raises the error that ended it
            break
        time.sleep(LOOK_S)
        look()
    run.stop()
    look()
