"""Read the settings of a pipeline from a TOML file, and check them.

`service/launch.py` builds the pipeline. Sections [contract] and [tuning] are the values of `config.py`, [guard] those
of `guard/limits.py` and `guard/rules.py`, the others are in `settings_sections.py`. Relative paths start at the
settings file's own folder, so that a start from another folder never begins a second checkpoint by accident. Every
error of a file is found at once, and each names its line and a remedy (`settings_errors.py`, `toml_lines.py`).
"""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from geoswarm.config import Contract, Tuning, WindowSettings
from geoswarm.control.keyed.registry import check_planner
from geoswarm.control.registry import STRATEGIES
from geoswarm.errors import GeoswarmError, SettingsError
from geoswarm.flow.keyed.registry import OPERATORS
from geoswarm.guard.limits import GuardSettings
from geoswarm.parameters import constructor_values, parameters_of
from geoswarm.run.registry import WORKLOADS
from geoswarm.service.cli.settings_errors import (
    SettingsProblem,
    invalid_toml,
    key_location,
    problem_of,
    problem_of_option,
)
from geoswarm.service.cli.settings_sections import (
    AggregatesSection,
    CheckpointSection,
    DeliverySetting,
    EncryptionSection,
    EventsSetting,
    GeneratedEvents,
    OperationsSetting,
    Section,
    SinkSetting,
    SparkSection,
    StageSection,
    StageSetting,
    SubscriptionsSection,
    TrendingSetting,
    TriggerSection,
)
from geoswarm.service.cli.toml_lines import Location, find_line, key_lines


class PipelineSettings(Section):
    contract: Contract = Contract()
    tuning: Tuning = Tuning()
    window: WindowSettings | None = None
    """Events that are kept; it becomes part of the tuning."""
    aggregates: AggregatesSection | None = None
    """The sink for aggregates of subscriptions; None: a subscription with an aggregate is refused."""
    checkpoint: CheckpointSection
    encryption: EncryptionSection | None = None
    guard: GuardSettings | None = None
    """None if no user is limited."""
    spark: SparkSection = SparkSection()
    events: EventsSetting
    operations: OperationsSetting | None = None
    subscriptions: SubscriptionsSection | None = None
    sink: SinkSetting
    trigger: TriggerSection = TriggerSection()
    stages: list[StageSetting] = Field(default=[])
    """Keyed operators beside the matching."""
    delivery: DeliverySetting | None = None
    """A stage whose section has the name of its operator."""
    trending: TrendingSetting | None = None

    @property
    def all_stages(self) -> list[tuple[Location, StageSection]]:
        """All stages, each with its location in the file."""
        found: list[tuple[Location, StageSection]] = [(("stages", n), stage) for n, stage in enumerate(self.stages)]
        named = (("delivery", self.delivery), ("trending", self.trending))
        return found + [((name,), stage) for name, stage in named if stage is not None]

    @property
    def needs_kafka(self) -> bool:
        sinks = [stage.sink for _, stage in self.all_stages]
        sinks += [self.aggregates.sink] if self.aggregates is not None else []
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
        places = [(find_line(lines, key_location(location, message)), message) for location, message in problems]
        raise SettingsError("\n".join(_line(file, line, message) for line, message in sorted(places)))
    return settings


def _line(file: Path, line: int, message: str) -> str:
    return f"{file}, line {line}: {message}" if line else f"{file}: {message}"


def _at_home(settings: PipelineSettings, folder: Path) -> PipelineSettings:
    changed: dict[str, Any] = {"sink": settings.sink.at_home(folder)}
    for name in ("checkpoint", "events", "operations", "subscriptions"):
        section = getattr(settings, name)
        if section is not None and "path" in type(section).model_fields and "://" not in section.path:
            changed[name] = section.model_copy(update={"path": str(folder / section.path)})
    if settings.encryption is not None:
        changed["encryption"] = EncryptionSection(key_file=str(folder / settings.encryption.key_file))
    for name in ("delivery", "trending"):
        changed[name] = getattr(settings, name) and _stage_at_home(getattr(settings, name), folder)
    tuned: dict[str, Any] = {"window": settings.window} if settings.window is not None else {}
    if settings.aggregates is not None:
        sink = settings.aggregates.sink.at_home(folder)
        changed["aggregates"] = settings.aggregates.model_copy(update={"sink": sink})
        tuned["aggregates"] = settings.aggregates.settings
    changed["tuning"] = settings.tuning.model_copy(update=tuned)
    changed["stages"] = [_stage_at_home(stage, folder) for stage in settings.stages]
    return settings.model_copy(update=changed)


def _stage_at_home(stage: StageSection, folder: Path) -> StageSection:
    return stage.model_copy(update={"sink": stage.sink.at_home(folder), "operator": stage.operator.at_home(folder)})


# -- relations between sections, checked once every section is valid


def _relations(settings: PipelineSettings) -> Iterator[SettingsProblem]:
    events, trigger = settings.events, settings.trigger
    yield from _strategy_relations(settings.tuning)
    for location, stage in settings.all_stages:
        yield from _stage_relations(location, stage)
    if trigger.available_now and trigger.every_s:
        yield ("trigger", "every_s"), "[trigger] has both every_s and available_now: keep one of them"
    if settings.encryption is not None and not Path(settings.encryption.key_file).is_file():
        file = settings.encryption.key_file
        message = f"[encryption] key_file {file} is no file: make one with `geoswarm key FILE`"
        yield ("encryption", "key_file"), message
    if isinstance(events, GeneratedEvents):
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


def _strategy_relations(tuning: Tuning) -> Iterator[SettingsProblem]:
    try:
        kind: Any = STRATEGIES.kind(tuning.strategy)
    except SettingsError as why:
        yield ("tuning", "strategy"), f"[tuning] {why}"
        return
    try:
        constructor_values(kind, tuning.options)
        kind(**tuning.options)
    except ValidationError as why:
        known = [parameter.name for parameter in parameters_of(kind) if parameter.is_plain]
        for error in why.errors():
            yield problem_of_option(("tuning", "options"), error, known)
    except GeoswarmError as why:
        yield ("tuning", "options"), f"[tuning.options] {why}"


def _stage_relations(location: Location, stage: StageSection) -> Iterator[SettingsProblem]:
    header = f"[{location[0]}]" if len(location) == 1 else f"[[{location[0]}]]"
    try:
        OPERATORS.make(stage.operator.kind, stage.operator.options)
    except GeoswarmError as why:
        yield location, f"{header} {why}"
    try:
        check_planner(stage.tuning)
    except SettingsError as why:
        yield (*location, "tuning"), f"[{location[0]}.tuning] {why}"


def _generated_relations(events: GeneratedEvents, settings: PipelineSettings) -> Iterator[SettingsProblem]:
    if settings.trigger.available_now and events.pace.rows_total is None:
        message = f"[trigger] available_now never ends on {events.kind} without an end: give [events] rows_total"
        yield ("trigger", "available_now"), message
    try:
        workload = WORKLOADS.make(events.kind, events.workload.options)
    except GeoswarmError as why:
        yield ("events",), f"[events] {why}"
        return
    world = settings.contract.bounds
    drawn = getattr(workload, "bounds", world)
    if not (world[0] <= drawn[0] and world[1] <= drawn[1] and drawn[2] <= world[2] and drawn[3] <= world[3]):
        message = f"bounds {list(world)} do not hold the {events.kind}, drawn within {list(drawn)}"
        yield ("contract",), f"[contract] {message}: widen them, or give [events] bounds"
