"""The demo's report: one page that stands alone, and its pictures beside it."""

import base64
import html
import io
from pathlib import Path

from geoswarm.lab.bench.kit.machine import machine
from geoswarm.lab.bench.kit.plots import style
from geoswarm.lab.demo import pictures
from geoswarm.lab.demo.story import Story

PICTURES = {
    "load-map": (
        pictures.load_map,
        "The plan as it was first and as it is at the end, over the events of that time.",
    ),
    "balance": (
        pictures.balance,
        "The busiest executor's CPU over the mean, batch by batch. Had the first plan been kept: the same measured "
        "times, given to who owned the place first.",
    ),
    "executors": (pictures.executors, "How the work spread over the executors, under the first plan and at the end."),
    "timeline": (pictures.timeline, "How the run went."),
}

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>geoswarm demo</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
 body {{ font: 17px/1.55 system-ui, sans-serif; color: #1c2333; background: #f6f7fa; margin: 0 }}
 main {{ max-width: 1080px; margin: 0 auto; padding: 2.5rem 1.5rem }}
 h1 {{ font-size: 1.9rem; margin: 0 }}
 .cards {{ display: flex; flex-wrap: wrap; gap: 1rem; margin: 1.6rem 0 }}
 .card {{ flex: 1 1 150px; background: #fff; border-radius: 10px; padding: .9rem 1.1rem; box-shadow: 0 1px 4px #0002 }}
 .card b {{ display: block; font-size: 1.5rem; font-variant-numeric: tabular-nums }}
 .card span, figcaption, footer {{ color: #5d6780; font-size: .92rem }}
 figure {{ margin: 1.6rem 0; background: #fff; border-radius: 10px; padding: 1rem; box-shadow: 0 1px 4px #0002 }}
 img {{ width: 100%; display: block; border-radius: 6px }}
</style></head><body><main>
<h1>geoswarm demo</h1>
<p>{sentence}</p>
<div class="cards">{cards}</div>
{figures}
<footer>{footer}</footer>
</main></body></html>
"""


def write_report(story: Story, folder: Path) -> Path:
    """Write report.html and the pictures into `folder`; returns the page's path."""
    figures = []
    with style():
        for name, (draw, caption) in PICTURES.items():
            image = io.BytesIO()
            draw(story).savefig(image, format="png")
            (folder / f"{name}.png").write_bytes(image.getvalue())
            data = base64.b64encode(image.getvalue()).decode()
            picture = f'<img alt="{html.escape(caption)}" src="data:image/png;base64,{data}">'
            figures.append(f"<figure>{picture}<figcaption>{html.escape(caption)}</figcaption></figure>")
    page = folder / "report.html"
    page.write_text(
        PAGE.format(
            sentence=html.escape(story.plans_sentence),
            cards="".join(
                f'<div class="card"><b>{value}</b><span>{name}</span></div>' for name, value in _cards(story)
            ),
            figures="\n".join(figures),
            footer=html.escape(_footer(story)),
        )
    )
    return page


def _cards(story: Story) -> list[tuple[str, str]]:
    events_per_s, matches_per_s = story.rates
    return [
        ("events/s", f"{events_per_s:,.0f}"),
        ("matches/s", f"{matches_per_s:,.0f}"),
        ("median batch", f"{story.batch_s_p50:.2f} s"),
        ("subscriptions", f"{story.subscriptions:,}"),
        ("plans", f"{story.plans[-1].epoch - story.plans[0].epoch + 1}"),
        ("busiest / mean, first → last", f"{story.skew_first:.1f} → {story.skew_last:.1f}"),
    ]


def _footer(story: Story) -> str:
    about, subs = machine(), f"{story.changes:,} subscriptions changed meanwhile"
    clock = f"the stream's clock ran from {story.stream_time(0)} to {story.stream_time(story.totals.events)} UTC"
    where = ", ".join(f"{key} {value}" for key, value in about.items())
    return (
        f"{story.totals_sentence}. {subs}; {clock}. Speeds leave out the first batch, in which workers start. "
        f"Matches were made in full and dropped at the sink. {where}."
    )
