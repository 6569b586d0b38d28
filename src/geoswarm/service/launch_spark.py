"""Build the engine on Spark, and its sources, from settings."""

from typing import Any

from geoswarm.run.registry import WORKLOADS
from geoswarm.run.spark import sources
from geoswarm.run.spark.engine import Engine
from geoswarm.run.spark.generator import workload_stream
from geoswarm.run.spark.jars import kafka_conf
from geoswarm.run.spark.session import build_session
from geoswarm.service.cli.settings_file import PipelineSettings
from geoswarm.service.cli.settings_sections import FilesSource, GeneratedEvents, KafkaSource


def build_engine(settings: PipelineSettings) -> Engine:
    conf = dict(settings.spark.conf)
    if settings.needs_kafka and "spark.jars" not in conf:
        conf |= kafka_conf(stand_in=True)
    spark = build_session(settings.spark.master, conf=conf)
    return Engine(spark, settings.contract, settings.tuning, checkpoint=settings.checkpoint.path, guard=settings.guard)


def build_sources(settings: PipelineSettings) -> dict[str, Any]:
    spark: Any = build_session()
    return {"events": _events(spark, settings), "operations": _operations(spark, settings)}


def _events(spark: Any, settings: PipelineSettings) -> Any:
    events = settings.events
    if isinstance(events, GeneratedEvents):
        workload = WORKLOADS.make(events.kind, events.workload.options)
        return workload_stream(spark, workload, events.pace)
    if isinstance(events, FilesSource):
        return sources.events_from_files(
            spark,
            events.path,
            format=events.format,
            extra=events.extra,
            files_per_batch=events.files_per_batch,
            columns=events.columns,
            ts_unit=events.ts_unit,
            event_id=events.event_id,
        )
    return sources.events_from_kafka(
        spark,
        events.bootstrap,
        events.topic,
        extra=events.extra,
        options=events.options,
        columns=events.columns,
        ts_unit=events.ts_unit,
        event_id=events.event_id,
        format=events.format,
        registry=events.registry,
        header=events.header,
    )


def _operations(spark: Any, settings: PipelineSettings) -> Any:
    operations = settings.operations
    if operations is None:
        return None
    if isinstance(operations, KafkaSource):
        return sources.operations_from_kafka(
            spark,
            operations.bootstrap,
            operations.topic,
            options=operations.options,
            columns=operations.columns,
            sub_id=settings.contract.subscription_ids,
            format=operations.format,
            registry=operations.registry,
            header=operations.header,
        )
    return sources.operations_from_files(
        spark,
        operations.path,
        format=operations.format,
        files_per_batch=operations.files_per_batch,
        columns=operations.columns,
        sub_id=settings.contract.subscription_ids,
    )
