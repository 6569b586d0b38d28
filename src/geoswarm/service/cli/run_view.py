"""The output of `geoswarm run` and `geoswarm status`: live numbers while a pipeline runs, a table at the end.

A terminal shows a few lines that are redrawn; elsewhere a plain line is printed every few seconds; with `as_json`,
stdout gets one JSON object per batch and one at the end, and nothing else.
"""

import json
import time
from contextlib import nullcontext
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from geoswarm.service import launch
from geoswarm.service.cli.settings_file import PipelineSettings
from geoswarm.service.watch import WatchedTotals, rates
from geoswarm.store.journal import JournalReader
from geoswarm.store.journal.entries import BatchEntry
from geoswarm.store.journal.writer import entry_json
from geoswarm.store.storage import Storage

PLAIN_LINE_S = 5.0
"""Seconds between two plain lines."""
RATE_BATCHES = 5


class _RunView:
    def __init__(self, storage: Storage, out: Console, err: Console, as_json: bool) -> None:
        self._follower, self._totals = JournalReader(storage).follow(BatchEntry), WatchedTotals()
        self._recent: list[BatchEntry] = []
        self._out, self._as_json = out, as_json
        self._live = Live(console=err, transient=True, auto_refresh=False) if err.is_terminal and not as_json else None
        self._err, self._said_s = err, time.monotonic()

    @property
    def totals(self) -> WatchedTotals:
        return self._totals

    def context(self) -> Any:
        return self._live or nullcontext()

    def look(self) -> None:
        new = self._follower.new()
        self._totals.add(new)
        self._recent = [*self._recent, *new][-RATE_BATCHES:]
        if self._as_json:
            for batch in new:
                print(json.dumps(entry_json(batch)), flush=True)
        elif self._live:
            self._live.update(self._table(), refresh=True)
        elif new and time.monotonic() - self._said_s >= PLAIN_LINE_S:
            self._said_s = time.monotonic()
            self._err.print(self._sentence(), soft_wrap=True, highlight=False)

    def _table(self) -> Table:
        last, (events_per_s, matches_per_s) = self._totals.last, rates(self._recent)
        table = Table("events/s", "matches/s", "last batch", "subscriptions", "dead letters", "batches")
        for column in table.columns:
            column.justify, column.min_width = "right", 12
        if last is None:
            table.add_row("waiting", "", "", "", "", "0")
        else:
            table.add_row(
                f"{events_per_s:,.0f}",
                f"{matches_per_s:,.0f}",
                f"{last.batch_s:.2f} s",
                f"{last.subscriptions:,}",
                f"{self._totals.dead:,}",
                f"{self._totals.batches:,}",
            )
        silent = "" if last is None or not last.silent_why else f"\nmatches nothing: {'; '.join(last.silent_why)}"
        table.caption = f"Ctrl-C stops{_further(self._totals)}{silent}"
        return table

    def _sentence(self) -> str:
        last, (events_per_s, matches_per_s) = self._totals.last, rates(self._recent)
        assert last is not None
        return (
            f"batch {last.batch}: {events_per_s:,.0f} events/s, {matches_per_s:,.0f} matches/s, "
            f"{last.batch_s:.2f} s, {last.subscriptions:,} subscriptions, {self._totals.dead:,} dead letters"
            f"{_further(self._totals)}"
            f"{'; matches nothing: ' + '; '.join(last.silent_why) if last.silent_why else ''}"
        )


def _further(totals: WatchedTotals) -> str:
    """What follows in a sentence about transitions and aggregates; empty while there are none."""
    held = 0 if totals.last is None else totals.last.held
    transitions = f", {totals.reported:,} transitions reported" if totals.reported else ""
    return transitions + (f", {totals.answers:,} answers" if totals.answers or held else "")


def run_pipeline(
    settings: PipelineSettings, out: Console, err: Console, *, local: bool = False, as_json: bool = False
) -> None:
    began_s = time.monotonic()
    with err.status("opening the checkpoint" if local else "starting Spark") if not as_json else nullcontext():
        engine = launch.build_engine(settings, local=local)
    with engine, launch.stop_on_signals() as asked:
        with err.status("loading subscriptions") if not as_json else nullcontext() as status:

            def progress(done: int, rows: int) -> None:
                if status is not None:
                    status.update(f"loading subscriptions: {done:,} of {rows:,}")

            loaded = launch.load(engine, settings, progress)
        if loaded is not None and (loaded.registered or loaded.dead) and not as_json:
            err.print(
                f"{loaded.registered:,} subscriptions loaded in {loaded.seconds:.1f} s, {loaded.dead:,} dead letters"
            )
        view = _RunView(Storage(settings.checkpoint.path), out, err, as_json)
        with view.context():
            if not asked.is_set():  # it may have been set during a long load
                stream = launch.start(engine, settings, err if as_json else out, local=local)
                launch.until_done(stream, asked, view.look)
    summary = {"kind": "summary", "stopped": asked.is_set(), "seconds": round(time.monotonic() - began_s, 3)}
    summary |= view.totals.to_json()
    if as_json:
        print(json.dumps(summary), flush=True)
    else:
        how, totals = "stopped" if asked.is_set() else "done", view.totals
        unmatched = totals.events - totals.matched - totals.dead
        out.print(
            f"{how}: {totals.batches:,} batch{'' if totals.batches == 1 else 'es'}, {totals.events:,} events, "
            f"{totals.matches:,} matches ({totals.matched:,} events matched, {unmatched:,} unmatched, "
            f"{totals.dead:,} dead letters{_further(totals)}) in {summary['seconds']:.1f} s",
            soft_wrap=True,
            highlight=False,
        )


def status_table(found: dict[str, Any]) -> Table:
    table = Table(title=f"checkpoint {found['checkpoint']}", title_justify="left", show_header=False)
    last, contract, kept = found["last_batch"], found["contract"], found["kept"]
    size = f"{found['subscription_bytes'] / 1e6:,.1f} MB, {found['segments']} segments"
    rows = {
        "made for": f"{contract['columns']} x {contract['rows']} cells, {contract['executors']} executors at first",
        "executors": f"{found['executors']:,}",
        "last engine": f"number {found['engines']}, process {found['last_process'] or 'unknown'}",
        "subscriptions": f"{found['subscriptions']:,} ({size})",
        "version": f"{found['version']} of the subscriptions, plan {found['plan_epoch']}",
        "batches": f"{found['batches']:,}",
        "events": f"{found['events']:,} ({found['matched']:,} matched, {found['dead']:,} dead letters)",
        "matches": f"{found['matches']:,}",
        "last batch": f"{last['batch']}: {last['events_in']:,} events in {last['batch_s']:.2f} s" if last else "none",
    }
    if kept is not None:
        size = f"{kept['bytes'] / 1e6:,.1f} MB"
        rows["kept events"] = f"{kept['events']:,} of the newest {kept['batches']:,} batches ({size})"
    if found["answers"] or (last and last["held"]):
        rows["aggregates"] = (
            f"{found['answers']:,} answers, {last['held']:,} rows held for open windows, {found['late']:,} late, "
            f"{found['ahead']:,} events ahead of the clock"
        )
    for lacking in found["lacking"]:
        rows[f"{'misfit of' if lacking.get('misfit') else 'no'} {lacking['column']}"] = lacking["what"]
    if found["reported"] or found["cooled"] or found["vague"]:
        rows["transitions"] = (
            f"{found['reported']:,} reported, {found['cooled']:,} left out by a cooldown, {found['vague']:,} events "
            "too inaccurate to decide by"
        )
    held = last["held_fixes"] if last else 0
    if found["late_fixes"] or found["ahead_fixes"] or held:
        rows["order of events"] = (
            f"{found['late_fixes']:,} events of objects came too late, {found['ahead_fixes']:,} were ahead of the "
            f"clock, {held:,} are held back (reorder_s)"
        )
    if found["without_object"] or found["without_text"]:
        rows["events without"] = (
            f"an object_id, while subscriptions follow objects: {found['without_object']:,}; a text, while "
            f"subscriptions ask for words: {found['without_text']:,}"
        )
    if found["silent"]:
        rows["matches nothing"] = "; ".join(found["silent"])
    if found["gaps"]:
        rows["gaps"] = f"{found['gaps']:,} ways of objects longer than cross_way_m_max"
    for name, value in rows.items():
        table.add_row(escape(name), escape(value))
    return table
