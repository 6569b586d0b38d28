"""A pipeline written down in TOML, read into settings that are known to be good.

Builds nothing: `launch.py` does. Sections [contract] and [tuning] are the values of `config.py`, [guard] those of
`guard/limits.py` and `guard/rules.py`. Relative paths start at the settings file's own folder, so that a start from
another folder never begins a second checkpoint by accident.
Every error of a file is found at once, and each names its line and a remedy (`settings_errors.py`, `toml_lines.py`).
"""

import dataclasses
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from geoswarm.config import EXECUTORS_MAX, Contract, Tuning
from geoswarm.errors import GeoswarmError, SettingsError
from geoswarm.guard.limits import GuardSettings
from geoswarm.lab.workload.posts import Posts
from geoswarm.lab.workload.tweets import Tweets
from geoswarm.service.cli.settings_errors import Problem, invalid_toml, problem_of, sharpened
from geoswarm.service.cli.toml_lines import find_line, key_lines


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


def _flat(value: Any) -> Any:
    """`kafka.acks = "all"` without quotes round the key is a table in a table to TOML; here it is one option. Spark
    takes every option as text."""
    if not isinstance(value, Mapping):
        return value
    options: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            options |= {f"{key}.{rest}": text for rest, text in _flat(inner).items()}
        elif isinstance(inner, bool):
            options[key] = str(inner).lower()
        else:
            options[key] = str(inner) if isinstance(inner, int | float) else inner
    return options


def _not_empty(text: str) -> str:
    if not text.strip():
        raise ValueError("is empty: give it a value")
    return text


Text = Annotated[str, AfterValidator(_not_empty)]
Options = Annotated[dict[str, str], BeforeValidator(_flat)]
Format = Literal["parquet", "json", "csv"]


class CheckpointSection(_Section):
    path: Text


class EncryptionSection(_Section):
    """The switch of `store/key_source.py`, written down. A key itself never stands in a settings file."""

    key_file: Text


class SparkSection(_Section):
    master: Text = "local[2]"
    conf: Options = {}


class FilesSource(_Section):
    kind: Literal["files"]
    path: Text
    format: Format | None = None
    files_per_batch: int | None = Field(default=None, ge=1)


class FilesEvents(FilesSource):
    extra: str = ""


class KafkaSource(_Section):
    kind: Literal["kafka"]
    bootstrap: Text
    topic: Text
    options: Options = {}


class KafkaEvents(KafkaSource):
    extra: str = ""


class GeneratedEvents(_Section):
    """What the embedded workloads have in common, and the fields of `spark.generator.Pace`."""

    seed: int = 0
    bounds: Annotated[tuple[float, float, float, float], Field(strict=False)] | None = None
    country: str | None = None
    events_per_s: float = 10_000.0
    background_share: float = 0.02
    burst_share: float = 0.05
    rows_per_batch: int = Field(default=500_000, ge=1)
    rows_total: int | None = Field(default=None, ge=0)
    partitions: int = Field(default=2, ge=1)
    paced: bool = False

    def parameters(self, workload: type[Any]) -> dict[str, Any]:
        names = {field.name for field in dataclasses.fields(workload) if field.init} & set(type(self).model_fields)
        return {name: getattr(self, name) for name in names}


class TweetsEvents(GeneratedEvents):
    """The fields of `workload.tweets.Tweets` that shape events."""

    kind: Literal["tweets"]

    def workload(self) -> Tweets:
        return Tweets(**self.parameters(Tweets))


class PostsEvents(GeneratedEvents):
    """The fields of `workload.posts.Posts` that shape events."""

    kind: Literal["posts"]
    words: int = 100_000
    regional_share: float = 0.6
    exponent: float = 1.1
    shift: float = 20.0

    def workload(self) -> Posts:
        return Posts(**self.parameters(Posts))


class SubscriptionsSection(_Section):
    path: Text
    """A Parquet file, loaded at the first start."""


class ParquetSink(_Section):
    kind: Literal["parquet"]
    path: Text


class KafkaSink(_Section):
    kind: Literal["kafka"]
    bootstrap: Text
    topic: Text
    options: Options = {}


class ConsoleSink(_Section):
    kind: Literal["console"]
    rows_max: int = Field(default=10, ge=1)


class TriggerSection(_Section):
    every_s: float = Field(default=0.0, ge=0.0)
    available_now: bool = False


Events = Annotated[FilesEvents | KafkaEvents | TweetsEvents | PostsEvents, Field(discriminator="kind")]
Operations = Annotated[FilesSource | KafkaSource, Field(discriminator="kind")]
Sink = Annotated[ParquetSink | KafkaSink | ConsoleSink, Field(discriminator="kind")]


class _Operator(_Section):
    """A keyed operator beside the matching: how it is spread, and where what it gives goes."""

    interval_s: float = Field(default=60.0, gt=0.0)
    executors: int | None = Field(default=None, ge=1, le=EXECUTORS_MAX)
    """None: as many as match."""
    sink: Sink


class DeliverySection(_Operator):
    per_interval: int = Field(ge=0)
    digest: bool = True
    digest_max: int = Field(default=20, ge=0, le=10_000)


class TrendingSection(_Operator):
    region_deg: float = Field(default=10.0, gt=0.0)
    window: int = Field(default=6, ge=1)
    top: int = Field(default=10, ge=1)
    count_min: int = Field(default=5, ge=1)


class PipelineSettings(_Section):
    contract: Contract = Contract()
    tuning: Tuning = Tuning()
    checkpoint: CheckpointSection
    encryption: EncryptionSection | None = None
    guard: GuardSettings | None = None
    """None: everybody may do everything."""
    spark: SparkSection = SparkSection()
    events: Events
    operations: Operations | None = None
    subscriptions: SubscriptionsSection | None = None
    sink: Sink
    trigger: TriggerSection = TriggerSection()
    delivery: DeliverySection | None = None
    trending: TrendingSection | None = None

    @property
    def needs_kafka(self) -> bool:
        sinks = [stage.sink for stage in (self.delivery, self.trending) if stage is not None]
        return any(getattr(s, "kind", "") == "kafka" for s in (self.events, self.operations, self.sink, *sinks))


def read_settings(path: str | Path) -> PipelineSettings:
    """The settings in a file, with its relative paths made absolute."""
    file = Path(path)
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as why:
        reason = getattr(why, "strerror", None) or "is no UTF-8 text"
        raise SettingsError(f"{file} cannot be read ({reason}): give the path of a settings file") from None
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as why:
        raise SettingsError(invalid_toml(file, str(why))) from None
    lines = key_lines(text)
    try:
        settings = _at_home(PipelineSettings.model_validate(data), file.absolute().parent)
        problems = list(_relations(settings))
    except ValidationError as why:
        problems = [problem_of(error, data, PipelineSettings) for error in why.errors()]
    if problems:
        places = [(find_line(lines, sharpened(location, say)), say) for location, say in problems]
        raise SettingsError("\n".join(_line(file, line, say) for line, say in sorted(places)))
    return settings


def _line(file: Path, line: int, say: str) -> str:
    return f"{file}, line {line}: {say}" if line else f"{file}: {say}"


def _at_home(settings: PipelineSettings, folder: Path) -> PipelineSettings:
    changed: dict[str, _Section] = {}
    for name in ("checkpoint", "events", "operations", "subscriptions", "sink"):
        section = getattr(settings, name)
        if section is not None and "path" in type(section).model_fields and "://" not in section.path:
            changed[name] = section.model_copy(update={"path": str(folder / section.path)})
    if settings.encryption is not None:
        changed["encryption"] = EncryptionSection(key_file=str(folder / settings.encryption.key_file))
    for name in ("delivery", "trending"):
        stage = getattr(settings, name)
        if stage is not None and isinstance(stage.sink, ParquetSink) and "://" not in stage.sink.path:
            sink = stage.sink.model_copy(update={"path": str(folder / stage.sink.path)})
            changed[name] = stage.model_copy(update={"sink": sink})
    return settings.model_copy(update=changed)


# -- what only shows once every section is good by itself


def _relations(settings: PipelineSettings) -> Iterator[Problem]:
    events, trigger = settings.events, settings.trigger
    if trigger.available_now and trigger.every_s:
        yield ("trigger", "every_s"), "[trigger] has both every_s and available_now: keep one of them"
    if settings.delivery and settings.delivery.per_interval == 0 and not settings.delivery.digest:
        yield ("delivery", "digest"), "[delivery] neither sends anything at once nor in a digest: set one of the two"
    if settings.encryption is not None and not Path(settings.encryption.key_file).is_file():
        say = f"[encryption] key_file {settings.encryption.key_file} is no file: make one with `geoswarm key FILE`"
        yield ("encryption", "key_file"), say
    if isinstance(events, TweetsEvents | PostsEvents):
        yield from _generated_relations(events, settings)
    for name in ("events", "operations", "subscriptions"):
        section = getattr(settings, name)
        path = getattr(section, "path", None)
        if path is None or "://" in path:
            continue
        if name == "subscriptions" and not Path(path).is_file():
            yield (name, "path"), f"[{name}] path {path} is no file: give a Parquet file of subscriptions"
        if name != "subscriptions" and not Path(path).is_dir():
            yield (name, "path"), f"[{name}] path {path} is no folder: create it; files put there are read as a stream"


def _generated_relations(events: TweetsEvents | PostsEvents, settings: PipelineSettings) -> Iterator[Problem]:
    if settings.trigger.available_now and events.rows_total is None:
        say = f"[trigger] available_now never ends on {events.kind} without an end: give [events] rows_total"
        yield ("trigger", "available_now"), say
    try:
        drawn = events.workload().bounds
    except GeoswarmError as why:
        yield ("events",), f"[events] {why}"
        return
    world = settings.contract.bounds
    if not (world[0] <= drawn[0] and world[1] <= drawn[1] and drawn[2] <= world[2] and drawn[3] <= world[3]):
        say = f"bounds {list(world)} do not hold the {events.kind}, drawn within {list(drawn)}"
        yield ("contract",), f"[contract] {say}: widen them, or give [events] bounds"
