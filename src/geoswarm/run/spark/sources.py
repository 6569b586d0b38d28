"""The sources of events and operations on Spark: files and Kafka. `generator.py` has the generated workloads.

Any other streaming DataFrame will do as well, and so does one that was made of these; then Spark reads the rows. Those
that come from here unchanged are read by the tasks themselves (`task_files.py`, `task_messages.py`). Text that cannot
be parsed is not lost: it travels in the column MALFORMED to validation, which files it as a dead letter.
"""

from collections.abc import Mapping
from typing import cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from geoswarm.errors import SettingsError
from geoswarm.flow.dead_letters import MALFORMED
from geoswarm.run.columns import EXTRA, PLAIN, Columns
from geoswarm.run.file_formats import first_parquet, guess_format
from geoswarm.run.made_ids import EVENT_ID
from geoswarm.run.message_formats import JSON_MESSAGES, MessageFormat
from geoswarm.run.message_reading import NO_VALUE, PLACE, VALUE
from geoswarm.run.source_times import TS
from geoswarm.run.spark.schemas import BY_TASKS, ORDER, SPARK_EVENT, SPARK_OPERATION, TS_UNIT, spark_schema
from geoswarm.run.spark.task_files import note_files
from geoswarm.run.spark.task_messages import note_messages
from geoswarm.run.undeclared import extra_field, keeps_extra, split_all


def events_from_files(
    spark: SparkSession,
    path: str,
    *,
    format: str | None = None,
    extra: str = "",
    files_per_batch: int | None = None,
    columns: Mapping[str, str] | None = None,
    ts_unit: str | None = None,
    event_id: str | None = None,
) -> DataFrame:
    """A folder to which files are added. `extra` declares further columns of JSON and CSV events, as in SQL:
    "text string, speed double"; with "all", in JSON, all others become one column (`run/undeclared.py`). Parquet
    declares its own columns. `columns` says what they are called in the files, as {"x": "lng", "event_id": "trip.id"},
    and `ts_unit` what numbers in `ts` count: "s", "ms", "us" or "ns". `event_id` is "integer", "text", or "made" where
    the files have none (`run/made_ids.py`)."""
    kind, (extra, takes_all) = format or guess_format(path), split_all(extra)
    names = Columns.of(columns, ts_unit, event_id, has_extra=takes_all and keeps_extra(kind))
    return _from_files(spark, path, kind, _with_extra(SPARK_EVENT, extra, names), files_per_batch, names)


AS_TEXT = StructType([StructField("geometry", StringType()) if f.name == "geometry" else f for f in SPARK_OPERATION])
"""In JSON and CSV a geometry is WKT, GeoJSON or hexadecimal; as bytes Spark would want it in base 64."""


def operations_from_files(
    spark: SparkSession,
    path: str,
    *,
    format: str | None = None,
    files_per_batch: int | None = None,
    columns: Mapping[str, str] | None = None,
    sub_id: str | None = None,
) -> DataFrame:
    """Operations take effect in the order of the files' times, and in order within a file. Spark itself reads the
    largest file of a batch first. `columns` is as for events. `sub_id` is "text" where JSON or CSV has ids that are
    texts, for a checkpoint with Contract(subscription_ids="text")."""
    time, block = "unix_micros(_metadata.file_modification_time)", "_metadata.file_block_start"
    place = f"concat_ws('/', lpad({time}, 20, '0'), _metadata.file_path, lpad({block}, 20, '0'))"
    kind, names = format or guess_format(path), Columns.of(columns, sub_id=sub_id)
    operations = _from_files(spark, path, kind, AS_TEXT, files_per_batch, names).withColumn(ORDER, F.expr(place))
    return note_files(operations, path, kind, names)


def events_from_kafka(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    *,
    extra: str = "",
    options: dict[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
    ts_unit: str | None = None,
    event_id: str | None = None,
    format: str | None = None,
    registry: str | None = None,
    header: str | None = None,
) -> DataFrame:
    """JSON objects in the messages' values. Starts at the earliest offset unless `options` set another;
    `maxOffsetsPerTrigger` among them bounds a batch. `columns`, `ts_unit` and `event_id` are as for files. Other values
    than JSON have a `format`: "avro" or "protobuf" with the address of their schema `registry`, "geojson", or "csv"
    with the `header` that each line lacks (`run/message_formats.py`)."""
    form, (extra, takes_all) = MessageFormat.of(format, registry, header), split_all(extra)
    names = Columns.of(columns, ts_unit, event_id, has_extra=takes_all)
    schema = _with_extra(SPARK_EVENT, extra, names)
    declared = spark_schema(pa.schema(form.declared(to_arrow_schema(schema, timezone="UTC"))))
    return _from_kafka(spark, bootstrap, topic, declared, options or {}, names, form)


def operations_from_kafka(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    *,
    options: dict[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
    sub_id: str | None = None,
    format: str | None = None,
    registry: str | None = None,
    header: str | None = None,
) -> DataFrame:
    """Key the messages by sub_id: operations on one subscription must stay in order. `sub_id` is as for files, the rest
    as for events."""
    form, names = MessageFormat.of(format, registry, header, is_of_operations=True), Columns.of(columns, sub_id=sub_id)
    return _from_kafka(spark, bootstrap, topic, AS_TEXT, options or {}, names, form)


def rename_columns(frame: DataFrame, columns: Mapping[str, str], *, ts_unit: str | None = None) -> DataFrame:
    """A DataFrame of your own with the columns that events have, as {"x": "lng", "event_id": "trip.id"}. Everything
    else stays as it is, and what is renamed leaves no second copy. Numbers in `ts` are read by the tasks."""
    return _rename(frame, Columns.of(columns, ts_unit))


def _from_files(
    spark: SparkSession,
    path: str,
    format: str | None,
    schema: StructType,
    files_per_batch: int | None,
    names: Columns,
) -> DataFrame:
    kind = format or guess_format(path)
    there = names.flat() if kind == "csv" else names
    schema = spark.read.parquet(path).schema if kind == "parquet" else _in_source(schema, there)
    reader = spark.readStream.format(kind)
    if kind != "parquet":
        schema = StructType([*schema.fields, StructField(MALFORMED, StringType())])
        reader = reader.option("mode", "PERMISSIVE").option("columnNameOfCorruptRecord", MALFORMED)
    if kind == "csv":
        # Otherwise Spark goes by position; with this, a file whose header differs from the first one's is an error.
        schema = _in_header_order(schema, spark.read.option("header", True).csv(path).columns)
        reader = reader.option("header", True).option("enforceSchema", False)
    if files_per_batch is not None:
        reader = reader.option("maxFilesPerTrigger", files_per_batch)
    frame = reader.schema(schema).load(path)
    first = first_parquet(path) if kind == "parquet" else None
    if first is not None and first.geo is not None:
        frame, there = frame.drop(*first.geo.covering), there.or_geometry(first.geo.geometry)
    return note_files(_rename(frame, there), path, kind, names)


def _in_source(schema: StructType, names: Columns) -> StructType:
    """Declared columns as a source of text has them."""
    if names == PLAIN:
        return schema
    declared = names.declare(to_arrow_schema(schema, timezone="UTC"))
    return spark_schema(pa.schema(names.nest(names.raw(declared))))


def _rename(frame: DataFrame, names: Columns) -> DataFrame:
    """The columns of a source under our names. What the tasks that read make is null here."""
    if names == PLAIN:
        return frame
    ours = names.bind(to_arrow_schema(frame.schema, timezone="UTC")).names
    named = {name: F.col(_quoted(path)) for name, path in names.paths}
    for made, kind in ((EVENT_ID, "long"), (EXTRA, "string")):
        if made in names.made:
            named[made] = F.lit(None).cast(kind)
    chosen = {name: named.get(name, _rest(name, names)) for name in ours}
    said: dict[str, dict[str, str]] = {TS: {TS_UNIT: names.ts_unit}} if names.ts_unit is not None else {}
    said |= {made: {BY_TASKS: made} for made in names.made}
    return frame.select(*(column.alias(name, metadata=said.get(name, {})) for name, column in chosen.items()))


def _rest(name: str, names: Columns) -> Column:
    """What is left of a column of the source."""
    dropped = [_quoted(path) for path in names.dropped(name) if path]
    return F.col(_quoted((name,))).dropFields(*dropped) if dropped else F.col(_quoted((name,)))


def _quoted(path: tuple[str, ...]) -> str:
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)


def _in_header_order(schema: StructType, header: list[str]) -> StructType:
    known = {field.name: field for field in schema}
    columns = [known.get(name, StructField(name, StringType())) for name in header]
    return StructType([*columns, StructField(MALFORMED, StringType())])


def _from_kafka(
    spark: SparkSession,
    bootstrap: str,
    topic: str,
    schema: StructType,
    options: dict[str, str],
    names: Columns,
    form: MessageFormat = JSON_MESSAGES,
) -> DataFrame:
    wanted = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        **options,
    }
    if names.makes_ids:
        _check_single_topic(wanted)
    messages = spark.readStream.format("kafka").options(**wanted).load()
    values = messages.select(*([VALUE, *PLACE] if names.makes_ids else [VALUE]))
    parsing = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": MALFORMED}
    with_malformed = StructType([*_in_source(schema, names), StructField(MALFORMED, StringType())])
    # A message without a value parses to nothing at all, which would lose it.
    text = F.coalesce(F.col(VALUE).cast("string"), F.lit(NO_VALUE))
    parsed = values.select(F.from_json(text, with_malformed, parsing).alias("parsed")).select("parsed.*")
    ours = _rename(parsed, names)
    if form.name != "json":  # a mark that only tasks can read them
        first = ours.schema["op" if form.is_of_operations else TS]
        what = "operations" if form.is_of_operations else "events"
        mark = {**first.metadata, BY_TASKS: f"{what} of messages in {form.name}"}
        ours = ours.withMetadata(first.name, mark)
    return note_messages(ours, values, wanted, names, form)


def _check_single_topic(options: Mapping[str, str]) -> None:
    others = {name.casefold() for name in options} & {"subscribepattern", "assign"}
    if others or "," in options["subscribe"]:
        raise SettingsError(
            f"made ids tell the messages of one topic apart, and {', '.join(others) or options['subscribe']} may be "
            "several: name a column event_id, or give each topic a stream"
        )


def _with_extra(schema: StructType, extra: str, names: Columns) -> StructType:
    if extra:
        schema = StructType([*schema.fields, *cast(StructType, StructType.fromDDL(extra)).fields])
    if names.has_extra:
        field = extra_field(to_arrow_schema(schema, timezone="UTC"))
        schema = StructType([*schema.fields, *spark_schema(pa.schema([field])).fields])
    return schema
