"""The demo's live view: headline numbers, the plan and its balance, the busiest executors, the last batches.

Draws what `story.py` holds, several times a second on a terminal; elsewhere one line every few seconds.
"""

import time
from types import TracebackType

import numpy as np
from rich.align import Align
from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from geoswarm.lab.demo.story import Story
from geoswarm.run.warm import progress
from geoswarm.service.watch import rates

PLAIN_LINE_S = 5.0
BUSIEST = 8
RECENT = 5
SPARKS = "▁▂▃▄▅▆▇█"
BLUE, ORANGE, GREEN, RED = "#56B4E9", "#E69F00", "#009E73", "#D55E00"


class DemoView:
    def __init__(self, story: Story, seconds: float, out: Console) -> None:
        self.seconds = seconds
        self._story, self._out = story, out
        self._live = Live(console=out, auto_refresh=False) if out.is_terminal else None
        self._began_s: float | None = None
        self._said_s = 0.0

    def __enter__(self) -> "DemoView":
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()

    def show(self) -> None:
        now_s = time.monotonic()
        if self._story.batches and self._began_s is None:
            self._began_s = now_s
        if self._live:
            self._live.update(self._picture(now_s), refresh=True)
        elif self._story.batches and now_s - self._said_s >= PLAIN_LINE_S:
            self._said_s = now_s
            self._out.print(self._sentence(), soft_wrap=True, highlight=False)

    def _sentence(self) -> str:
        story, (events_per_s, matches_per_s) = self._story, rates(self._story.warm[-RECENT:])
        last, plan = story.batches[-1], story.plans[-1]
        return (
            f"batch {last.batch}: {events_per_s:,.0f} events/s, {matches_per_s:,.0f} matches/s, "
            f"{last.batch_s:.2f} s (p50 {story.batch_s_p50:.2f} s), {story.subscriptions:,} subscriptions, "
            f"plan {plan.epoch} of {len(plan.partitions)} partitions, "
            f"busiest executor {story.skew_last:.1f} times the mean ({story.skew_first:.1f} at first)"
        )

    def _picture(self, now_s: float) -> Group | Panel:
        if not self._story.batches:
            said = "\n".join(filter(None, ["starting the stream: Python workers, the first batch ...", progress()]))
            text = Text(said, style="dim")
            return Panel(text, title="geoswarm demo", border_style=BLUE)
        width = min(self._out.width, 110)
        side = Table.grid()
        side.add_row(self._executors(width // 2), self._recent(width - width // 2))
        return Group(self._headline(now_s, width), self._plan(width), side)

    def _headline(self, now_s: float, width: int) -> Panel:
        story, last = self._story, self._story.batches[-1]
        events_per_s, matches_per_s = rates(story.warm[-RECENT:])
        each = [rates([batch]) for batch in story.warm[-14:]]
        table = Table.grid(expand=True)
        for _ in range(4):
            table.add_column(justify="center", ratio=1)
        table.add_row(
            *(Text(name, style="dim") for name in ("events/s", "matches/s", "batch p50 / last", "subscriptions"))
        )
        table.add_row(
            Text(f"{events_per_s:,.0f}", style=f"bold {BLUE}"),
            Text(f"{matches_per_s:,.0f}", style=f"bold {ORANGE}"),
            Text(f"{story.batch_s_p50:.2f} / {last.batch_s:.2f} s", style=f"bold {GREEN}"),
            Text(f"{story.subscriptions:,}", style="bold"),
        )
        table.add_row(
            Text(sparkline([r[0] for r in each]), style=BLUE),
            Text(sparkline([r[1] for r in each]), style=ORANGE),
            Text(sparkline([b.batch_s for b in story.warm[-14:]]), style=GREEN),
            Text(f"{story.changes:,} changes, {story.totals.dead:,} dead", style="dim"),
        )
        passed_s = min(now_s - (self._began_s or now_s), self.seconds)
        clock = f"{story.stream_time(0)} → {story.stream_time(story.totals.events)} UTC of the stream's day"
        title = f"[bold]geoswarm demo[/] · {passed_s:.0f} of {self.seconds:.0f} s"
        return Panel(table, title=title, subtitle=f"[dim]{clock}[/]", border_style=BLUE, width=width)

    def _plan(self, width: int) -> Panel:
        story, begun, ended = self._story, self._story.plans[0], self._story.plans[-1]
        table = Table.grid(expand=True)
        for ratio in (2, 2, 3):
            table.add_column(justify="center", ratio=ratio)
        table.add_row(*(Text(name, style="dim") for name in ("plan", "partitions", "busiest / mean")))
        table.add_row(
            Text(f"{ended.epoch}", style=f"bold {BLUE}"),
            Text(f"{len(ended.partitions)}", style=f"bold {BLUE}"),
            Text(f"{story.skew_last:.1f}", style=f"bold {_colour(story.skew_last)}"),
        )
        table.add_row(
            Text(f"redrawn {ended.epoch - begun.epoch} times", style="dim"),
            Text(f"{len(begun.partitions)} at first", style="dim"),
            Text(f"{story.skew_first:.1f} at first · {story.skew_kept:.1f} if kept", style="dim"),
        )
        return Panel(table, border_style=BLUE, width=width)

    def _executors(self, width: int) -> Panel:
        """Bars on the scale of the first plan, so that one sees them shrink."""
        story = self._story
        times = story.shares(story.last) * story.executors
        table = Table.grid(padding=(0, 1))
        room = max(width - 18, 8)
        order = np.argsort(-times, kind="stable")[:BUSIEST]
        top = max(float(times[order[0]]), story.skew_first)
        for executor in order:
            of_mean = float(times[executor])
            bar = Text("█" * max(1, round(of_mean / top * room)) if of_mean else "", style=_colour(of_mean))
            table.add_row(Text(f"{executor:>3}", style="bold"), bar, Text(f"{of_mean:5.1f}×"))
        title = f"busiest of {len(times)} executors, CPU / mean"
        return Panel(table, title=title, subtitle=f"[dim]{story.last_said}[/]", width=width, height=BUSIEST + 2)

    def _recent(self, width: int) -> Panel:
        table = Table(box=None, expand=True, pad_edge=False)
        for name in ("batch", "secs", "plan", "parts", "busiest"):
            table.add_column(name, justify="right", header_style="dim")
        rows = list(zip(self._story.batches, self._story.plans, self._story.skews, strict=True))
        for batch, plan, skew in reversed(rows[-(BUSIEST - 1) :]):
            table.add_row(
                str(batch.batch),
                f"{batch.batch_s:.2f}",
                str(plan.epoch),
                str(len(plan.partitions)),
                Text(f"{skew:.1f}×", style=_colour(skew)),
            )
        return Panel(Align.left(table), title="last batches", width=width, height=BUSIEST + 2)


def sparkline(values: list[float]) -> str:
    """A row of bars from zero up to the largest."""
    top = max(values, default=0.0) or 1.0
    return "".join(SPARKS[min(int(value / top * len(SPARKS)), len(SPARKS) - 1)] for value in values)


def _colour(of_mean: float) -> str:
    return RED if of_mean > 2 else ORANGE if of_mean > 1.5 else GREEN
