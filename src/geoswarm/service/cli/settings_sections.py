"""The sections of a settings file, one model each, and sections whose keys are the parameters of a named class.

    [sink]                      [[stages]]                  [events]
    kind = "parquet"            operator = "count"          kind = "tweets"
    path = "matches"            key = "word"                country = "DE"

The parameters of a sink, an operator or a workload are declared by its constructor alone; classes are found by name,
also in other packages (`registry.py`). `service/launch.py` makes the instances.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError, PydanticKnownError

from geoswarm.config import EXECUTORS_MAX, AggregateSettings, KeyBalancing
from geoswarm.flow.keyed.registry import OPERATORS
from geoswarm.parameters import constructor_values, parameters_of
from geoswarm.registry import Registry
from geoswarm.run.columns import Columns, IdKind
from geoswarm.run.generated import Pace
from geoswarm.run.message_formats import FormatName, MessageFormat
from geoswarm.run.registry import SINKS, WORKLOADS
from geoswarm.run.source_times import TsUnit

UNKNOWN_KEY = "unknown_key"
"""The type of an error whose context has the known keys."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, arbitrary_types_allowed=True)


def _flatten(value: Any) -> Any:
    """One option for `kafka.acks = "all"`, which without quotes round the key is a table in a table to TOML. Spark
    takes every option as text."""
    if not isinstance(value, Mapping):
        return value
    options: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            options |= {f"{key}.{rest}": text for rest, text in _flatten(inner).items()}
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
Options = Annotated[dict[str, str], BeforeValidator(_flatten)]
Format = Literal["parquet", "json", "csv"]


# -- classes by name


@dataclass(frozen=True)
class ClassSetting:
    """A class of a registry, by its name, with checked parameters."""

    kind: str
    options: Mapping[str, Any]

    def at_home(self, folder: Path) -> "ClassSetting":
        """The same with relative paths made absolute: those of parameters `path` or `..._path`."""
        paths = {key: value for key, value in self.options.items() if key == "path" or key.endswith("_path")}
        found = {key: str(folder / value) for key, value in paths.items() if value and "://" not in value}
        return replace(self, options={**self.options, **found})


def _read_named(
    registry: Registry[Any], value: Any, tag: str = "kind", known_beside: tuple[str, ...] = ()
) -> ClassSetting:
    if isinstance(value, ClassSetting):
        return value
    kind: Any = registry.kind(_tag(value, tag, registry.names()))
    given = {key: part for key, part in value.items() if key != tag}
    parameters = {p.name: p for p in parameters_of(kind) if p.is_plain}
    for key in given:
        if key in parameters and "dict[str, str]" in str(parameters[key].annotation):
            given[key] = _flatten(given[key])
    try:
        for key, part in given.items():
            if key in parameters and parameters[key].is_required and part == "":
                empty = _custom_error("value_error", "is empty: give it a value")
                raise _refusal([InitErrorDetails(type=empty, loc=(key,), input=part)])
        return ClassSetting(value[tag], constructor_values(kind, given))
    except ValidationError as why:
        raise _refusal(_details(why, [tag, *parameters, *known_beside])) from None


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise PydanticKnownError("model_type", {"class_name": "a section"})
    return value


def _tag(value: Any, tag: str, known: list[str]) -> str:
    name = _table(value).get(tag)
    if name is None:
        raise PydanticCustomError("tag_missing", "lacks the key", {"tag": tag})
    if name not in known:
        raise PydanticCustomError("tag_unknown", "unknown", {"tag": tag, "name": str(name), "known": known})
    return str(name)


def _refusal(details: list[InitErrorDetails]) -> ValidationError:
    return ValidationError.from_exception_data("section", details)


def _custom_error(kind: Any, message: str, context: Mapping[str, Any] | None = None) -> PydanticCustomError:
    return PydanticCustomError(kind, "{message}", {**(context or {}), "message": message})


def _details(why: ValidationError, known: list[str]) -> list[InitErrorDetails]:
    found = []
    for error in why.errors():
        is_unknown = error["type"] == "extra_forbidden"
        kind = UNKNOWN_KEY if is_unknown else error["type"]
        context = {"known": known} if is_unknown else error.get("ctx")
        found.append(
            InitErrorDetails(type=_custom_error(kind, error["msg"], context), loc=error["loc"], input=error["input"])
        )
    return found


def _read_both(first: Callable[[], Any], second: Callable[[], Any], known: list[str]) -> tuple[Any, Any]:
    """The values of two parts of a section; or an error with all that is wrong with either."""
    found: list[Any] = []
    wrong: list[InitErrorDetails] = []
    for read in (first, second):
        try:
            found.append(read())
        except ValidationError as why:
            wrong += _details(why, known)
    if wrong:
        raise _refusal(wrong)
    return found[0], found[1]


# -- sections


class CheckpointSection(Section):
    path: Text


class EncryptionSection(Section):
    """The file with the key (`store/key_source.py`). The key itself is never in a settings file."""

    key_file: Text


class SparkSection(Section):
    master: Text = "local[2]"
    conf: Options = {}


def _readable(names: dict[str, str]) -> dict[str, str]:
    Columns.of(names)
    return names


Names = Annotated[dict[str, Text], AfterValidator(_readable)]
"""What a source calls its columns, by our names (`run/columns.py`)."""


class EventColumns(Section):
    """What the columns of events are, in a source of any kind (`run/columns.py`)."""

    columns: Names = {}
    extra: str = ""
    ts_unit: TsUnit | None = None
    event_id: IdKind | None = None

    @model_validator(mode="after")
    def _agree(self) -> Self:
        Columns.of(self.columns, self.ts_unit, self.event_id)
        return self


class FilesSource(Section):
    kind: Literal["files"]
    path: Text
    format: Format | None = None
    files_per_batch: int | None = Field(default=None, ge=1)
    columns: Names = {}


class FilesEvents(FilesSource, EventColumns):
    """The columns of events, too."""


class KafkaSource(Section):
    kind: Literal["kafka"]
    bootstrap: Text
    topic: Text
    options: Options = {}
    columns: Names = {}
    format: FormatName | None = None
    registry: Text | None = None
    header: Text | None = None

    @model_validator(mode="after")
    def _agree_on_format(self) -> Self:
        MessageFormat.of(self.format, self.registry, self.header)
        return self


class KafkaEvents(KafkaSource, EventColumns):
    """The columns of events, too."""


class GeneratedEvents(Section):
    """Generated events of a workload, for trials."""

    workload: ClassSetting
    pace: Pace

    @property
    def kind(self) -> str:
        return self.workload.kind


class SubscriptionsSection(Section):
    path: Text
    """A Parquet file, loaded at the first start."""


class TriggerSection(Section):
    every_s: float = Field(default=0.0, ge=0.0)
    available_now: bool = False


SinkSetting = Annotated[ClassSetting, PlainValidator(partial(_read_named, SINKS))]
OperationsSetting = Annotated[
    FilesSource | KafkaSource, PlainValidator(lambda value: _read_source(value, OPERATIONS, []))
]
EventsSetting = Annotated[
    FilesEvents | KafkaEvents | GeneratedEvents,
    PlainValidator(lambda value: _read_source(value, EVENTS, WORKLOADS.names())),
]
OPERATIONS: dict[str, type[Section]] = {"files": FilesSource, "kafka": KafkaSource}
EVENTS: dict[str, type[Section]] = {"files": FilesEvents, "kafka": KafkaEvents}


def _read_source(value: Any, models: Mapping[str, type[Section]], workloads: list[str]) -> Section:
    if isinstance(value, Section):
        return value
    kind = _tag(value, "kind", [*models, *workloads])
    if kind in models:
        try:
            return models[kind].model_validate(value)
        except ValidationError as why:
            raise _refusal(_details(why, list(models[kind].model_fields))) from None
    known = [parameter.name for parameter in parameters_of(Pace)]
    beside = {key: part for key, part in value.items() if key in known}
    own = {key: part for key, part in value.items() if key not in known}
    pace, named = _read_both(
        partial(constructor_values, Pace, beside),
        partial(_read_named, WORKLOADS, own, known_beside=tuple(known)),
        known,
    )
    return GeneratedEvents(workload=named, pace=Pace(**pace))


class AggregatesSection(AggregateSettings):
    """Its other keys become part of the tuning."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    sink: SinkSetting

    @property
    def settings(self) -> AggregateSettings:
        return AggregateSettings(lateness_s=self.lateness_s, ahead_s=self.ahead_s)


class StageFields(Section):
    """Settings of every keyed operator beside the matching: its executors, its planner and its sink."""

    on: Literal["events", "matches"] = "events"
    interval_s: float = Field(default=60.0, gt=0.0)
    executors: int | None = Field(default=None, ge=1, le=EXECUTORS_MAX)
    """None for as many as the matching has."""
    tuning: KeyBalancing = KeyBalancing()
    sink: SinkSetting


class StageSection(StageFields):
    operator: ClassSetting


def _read_stage(value: Any, operator: str | None = None, **defaults: Any) -> StageSection:
    """Read a stage. `operator` is given where the name of the section is the operator."""
    if isinstance(value, StageSection):
        return value
    known, table = list(StageFields.model_fields), _table(value)
    if operator is not None:
        if "operator" in table:
            raise ValueError(f"operator is {operator}, which the section is called by: leave the key out")
        table = {**defaults, "operator": operator, **table}
    _tag(table, "operator", OPERATORS.names())
    beside = {key: part for key, part in table.items() if key in known}
    own = {key: part for key, part in table.items() if key not in known}
    fields, named = _read_both(
        partial(StageFields.model_validate, beside),
        partial(_read_named, OPERATORS, own, "operator", tuple(known)),
        known,
    )
    return StageSection(operator=named, **{name: getattr(fields, name) for name in known})


StageSetting = Annotated[StageSection, PlainValidator(_read_stage)]
DeliverySetting = Annotated[StageSection, PlainValidator(partial(_read_stage, operator="delivery", on="matches"))]
TrendingSetting = Annotated[StageSection, PlainValidator(partial(_read_stage, operator="trending"))]
