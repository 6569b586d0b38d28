"""Build the engine in one process, and its sources, from settings. The section [spark] is ignored."""

from dataclasses import asdict
from typing import Any

from geoswarm.errors import SettingsError
from geoswarm.run.local.engine import LocalEngine
from geoswarm.run.local.sources import Source, events_from_files, from_workload, operations_from_files
from geoswarm.run.registry import WORKLOADS
from geoswarm.run.warm import warm_in_background
from geoswarm.service.cli.settings_file import PipelineSettings
from geoswarm.service.cli.settings_sections import FilesSource, GeneratedEvents, KafkaSource


def build_engine(settings: PipelineSettings) -> LocalEngine:
    if any(isinstance(source, KafkaSource) for source in (settings.events, settings.operations)):
        raise SettingsError("the local engine does not read Kafka: leave --local out, or read files")
    warm_in_background()
    return LocalEngine(settings.contract, settings.tuning, checkpoint=settings.checkpoint.path, guard=settings.guard)


def build_sources(settings: PipelineSettings) -> dict[str, Any]:
    return {"events": _events(settings), "operations": _operations(settings)}


def _events(settings: PipelineSettings) -> Source:
    events = settings.events
    if isinstance(events, GeneratedEvents):
        workload = WORKLOADS.make(events.kind, events.workload.options)
        return from_workload(workload, **asdict(events.pace))
    assert isinstance(events, FilesSource), "build_engine has refused the others"
    return events_from_files(
        events.path,
        format=events.format,
        extra=events.extra,
        files_per_batch=events.files_per_batch,
        columns=events.columns,
        ts_unit=events.ts_unit,
        event_id=events.event_id,
    )


def _operations(settings: PipelineSettings) -> Source | None:
    operations = settings.operations
    if operations is None:
        return None
    assert isinstance(operations, FilesSource), "build_engine has refused the others"
    return operations_from_files(
        operations.path,
        format=operations.format,
        files_per_batch=operations.files_per_batch,
        columns=operations.columns,
        sub_id=settings.contract.subscription_ids,
    )
