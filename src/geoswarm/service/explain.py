"""How a plan came about: the journal's rounds as sentences.

Nothing is written. The numbers are those that the strategy and the coordinator journalled when they decided.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import fields

from geoswarm.control.outcome import KeyRoundEntry, RoundEntry, ScaleEntry
from geoswarm.core.journal_entry_base import Figure
from geoswarm.core.space.change import ChangeNote, Spread, name_of
from geoswarm.errors import InputError
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.kept.summary import summarise
from geoswarm.store.storage import Storage


def rounds(storage: Storage, epoch: int | None) -> list[RoundEntry | ScaleEntry]:
    """The rounds that led to plan `epoch`, refusals and waits included, and decisions about the number of executors;
    without one, all of them."""
    entries = list[RoundEntry | ScaleEntry](JournalReader(storage).read(RoundEntry, ScaleEntry))
    if epoch is None:
        return entries
    next_epochs = [entry.epoch_next if isinstance(entry, RoundEntry) else None for entry in entries]
    ends = [i for i, made in enumerate(next_epochs) if made == epoch]
    if not ends:
        made = [number for number in next_epochs if number is not None]
        known = f"plans {min(made)} to {max(made)} are" if made else "no plan but the first is"
        raise InputError(f"the journal does not show how plan {epoch} came about: {known} in it")
    begins = [i for i, made in enumerate(next_epochs[: ends[-1]]) if made is not None]
    return entries[begins[-1] + 1 if begins else 0 : ends[-1] + 1]


def sentences(entries: Sequence[RoundEntry | ScaleEntry]) -> Iterator[str]:
    for entry in entries:
        if isinstance(entry, ScaleEntry):
            yield _scale_sentence(entry)
            continue
        spread = ""
        if entry.cost_max is not None and entry.cost_mean is not None:
            spread = f" (costliest executor {_ratio(entry.cost_max, entry.cost_mean)} times the mean)"
        yield f"round {entry.round}, plan {entry.epoch}, {entry.strategy}: {entry.outcome}{spread}"
        handover = entry.handover
        if handover is not None:
            yield (
                f"  executor {handover.giver} (cost {handover.cost_high:.3g}) hands {handover.cost_moved:.3g} "
                f"to executor {handover.taker} (cost {handover.cost_low:.3g}) by a {handover.decision}"
            )
        elif "sentence" in entry.why:
            yield f"  {entry.why['sentence']}"
        elif entry.decision:
            yield "  " + ", ".join(f"{name} {_short(value)}" for name, value in entry.why.items())
        for change in entry.changes:
            yield f"  {_change(change)}"
        if "warning" in entry.why:
            yield f"  warning: {entry.why['warning']}"
        if entry.reason is not None:
            yield f"  refused: {entry.reason}"
        elif entry.epoch_next is not None:
            before, after = entry.estimate_before, entry.estimate_after
            known = before is not None and after is not None
            effect = f", estimated maximum {before:.3g} -> {after:.3g}" if known else ""
            yield f"  plan {entry.epoch_next} from the next batch on{effect}"


def costs(storage: Storage) -> Iterator[str]:
    """What the newest batch cost, and how it was charged."""
    last = JournalReader(storage).last(BatchEntry)
    if last is None or last.rates is None or not last.events_in:
        return
    rates, spent_us = last.rates, sum(load.cpu_us for load in last.executors.values())
    yield (
        f"cost: executors spent {spent_us / last.events_in:.2f} µs of CPU per event in batch {last.batch}; beyond "
        f"matching, a task takes {rates.task_us / 1e3:.1f} ms, an event {rates.event_us:.2f} µs and a match "
        f"{rates.match_us:.2f} µs more"
    )


def kept_events(storage: Storage) -> Iterator[str]:
    """What is kept of the stream, and what new subscriptions were given of it."""
    kept = summarise(storage)
    if kept is None:
        return
    span_s = (kept.newest_us - kept.oldest_us) * 1e-6
    yield (
        f"kept: {kept.events:,} events of {kept.batches:,} batches that came within {span_s:,.0f} s, "
        f"{kept.bytes / 1e6:,.1f} MB in {kept.files:,} files; {kept.merged_batches:,} of the batches share a file; "
        f"{kept.cut:,} batches went early, for want of room"
    )
    given = [entry for entry in JournalReader(storage).read(BatchEntry) if entry.pasts]
    if given:
        left_out = sum(entry.past_left_out for entry in given)
        remedy = ": raise past_matches_max of [window], or ask for less" if left_out else ""
        yield (
            f"  {sum(entry.pasts for entry in given):,} new subscriptions were given "
            f"{sum(entry.past_matches for entry in given):,} matches of it, and {left_out:,} were left out{remedy}"
        )


def aggregates(storage: Storage) -> Iterator[str]:
    """What subscriptions have counted, and what was too late for it."""
    last = JournalReader(storage).last(BatchEntry)
    if last is None or not (last.totals.answers or last.totals.late or last.held):
        return
    totals, lateness = last.totals, "raise lateness_s of [aggregates] if that is too many" if last.totals.late else ""
    yield (
        f"aggregates: {totals.answers:,} answers, {last.held:,} rows held for windows that are open after "
        f"batch {last.batch}; "
        f"{totals.late:,} times an event came after its window had closed"
        f"{', ' * bool(lateness)}{lateness}; {totals.ahead:,} events were too far ahead of the clock to close windows"
    )


def _scale_sentence(entry: ScaleEntry) -> str:
    is_kept = entry.executors_next == entry.executors
    what = f"{entry.executors} executors stay" if is_kept else f"{entry.executors} -> {entry.executors_next} executors"
    if entry.load is None:
        return f"{what}: {entry.reason}"
    return (
        f"{what}: load {entry.load:.0%}, {entry.reason} (batches took {entry.batch_s or 0.0:.3g} s of "
        f"{entry.interval_s or 0.0:.3g} s, busy {entry.busy or 0.0:.0%} of the time, {entry.events_per_s or 0.0:,.0f} "
        "events/s)"
    )


def key_rounds(storage: Storage, operator: str) -> list[KeyRoundEntry]:
    """All rounds in which the keys of an operator were examined."""
    entries = list(JournalReader(storage).read(KeyRoundEntry))
    known = sorted({entry.operator for entry in entries})
    if operator not in known:
        others = f"it has {', '.join(known)}" if known else "no round of any operator has ended yet"
        raise InputError(f"the journal has no round of operator {operator}: {others}")
    return [entry for entry in entries if entry.operator == operator]


def key_sentences(entries: list[KeyRoundEntry]) -> Iterator[str]:
    for entry in entries:
        figures = entry.figures
        if figures is None:
            yield f"scaled from {entry.executors_before} to {entry.executors} executors: plan {entry.epoch}"
            continue
        yield (
            f"round {entry.round}, {entry.planner}: {entry.decision} "
            f"(busiest of {entry.executors} executors {figures.skew_before:.2f} times the mean)"
        )
        if entry.decision == "rebalanced":
            yield (
                f"  {figures.moved_keys} of {figures.keys} keys go elsewhere, with {figures.migration_share:.1%} of "
                f"the state, which stays where it lies; the table has {figures.table} entries of {figures.table_max}"
            )
            yield f"  plan {entry.epoch} from the next batch on, busiest {figures.skew:.2f} times the mean"
        if entry.splits:
            parts = ", ".join(f"{key} in {ways}" for key, ways in entry.splits.items())
            yield f"  keys in parts, by their ids: {parts}"
        for text in (figures.overweight, figures.remedy, figures.kept):
            if text is not None:
                yield f"  {text}"


def _change(change: ChangeNote) -> str:
    if isinstance(change, Spread):
        dealt = ", ".join(f"{count} to executor {executor}" for executor, count in Counter(change.turns).items())
        return f"spread partition {change.partition}, of {len(change.turns)} turns {dealt}"
    held = {each.name: getattr(change, each.name) for each in fields(change)}
    parts = (f"{name} {list(value) if isinstance(value, tuple) else value}" for name, value in held.items())
    return f"{name_of(change)} {', '.join(parts)}"


def _short(value: Figure) -> str:
    return f"{value:.6g}" if isinstance(value, float) else f"{value}"


def _ratio(high: float, mean: float) -> str:
    return f"{high / mean:.1f}" if mean else "0"
