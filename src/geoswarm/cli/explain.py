"""Why a plan is as it is: the journal's rounds, told as sentences.

Reads only. The numbers are those the strategy and the coordinator wrote down when they decided.
"""

from collections.abc import Iterator
from typing import Any

from geoswarm import journal
from geoswarm.errors import InputError
from geoswarm.state.storage import Storage


def rounds(storage: Storage, epoch: int | None) -> list[dict[str, Any]]:
    """The rounds that led to plan `epoch`, refusals and waits included; without one, all rounds."""
    told = list(journal.read(storage, "round"))
    if epoch is None:
        return told
    ends = [i for i, entry in enumerate(told) if entry.get("epoch_next") == epoch]
    if not ends:
        made = [entry["epoch_next"] for entry in told if "epoch_next" in entry]
        known = f"plans {min(made)} to {max(made)} are" if made else "no plan but the first is"
        raise InputError(f"the journal does not say how plan {epoch} came about: {known} in it")
    begins = [i for i, entry in enumerate(told[: ends[-1]]) if "epoch_next" in entry]
    return told[begins[-1] + 1 if begins else 0 : ends[-1] + 1]


def sentences(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        why = dict(entry["why"])
        head = f"round {entry['round']}, plan {entry['epoch']}, {entry['strategy']}"
        spread = ""
        if "cost_max" in entry:
            spread = f" (costliest executor {_ratio(entry['cost_max'], entry['cost_mean'])} times the mean)"
        yield f"{head}: {entry['outcome']}{spread}"
        if "from" in why:
            yield (
                f"  executor {why['from']} (cost {why['cost_high']:.3g}) hands {why['cost_moved']:.3g} "
                f"to executor {why['to']} (cost {why['cost_low']:.3g}) by a {why['decision']}"
            )
        elif "decision" in why:
            numbers = ", ".join(f"{k} {v:.6g}" if isinstance(v, float) else f"{k} {v}" for k, v in why.items())
            yield f"  {numbers}"
        for change in entry["changes"]:
            kind = change["change"]
            yield "  " + kind + " " + ", ".join(f"{k} {v}" for k, v in change.items() if k != "change")
        if "reason" in entry:
            yield f"  refused: {entry['reason']}"
        elif "epoch_next" in entry:
            before, after = entry.get("estimate_before"), entry.get("estimate_after")
            effect = f", estimated maximum {before:.3g} -> {after:.3g}" if before is not None else ""
            yield f"  plan {entry['epoch_next']} from the next batch on{effect}"


def _ratio(high: float, mean: float) -> str:
    return f"{high / mean:.1f}" if mean else "0"
