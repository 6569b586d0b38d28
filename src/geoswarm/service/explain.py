"""Why a plan is as it is: the journal's rounds, told as sentences.

Reads only. The numbers are those the strategy and the coordinator wrote down when they decided.
"""

from collections.abc import Iterator
from typing import Any

from geoswarm.errors import InputError
from geoswarm.store import journal
from geoswarm.store.storage import Storage


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


def key_rounds(storage: Storage, operator: str) -> list[dict[str, Any]]:
    """Every look that was taken at the keys of an operator."""
    told = list(journal.read(storage, "keys"))
    known = sorted({entry["operator"] for entry in told})
    if operator not in known:
        said = f"it tells of {', '.join(known)}" if known else "no round of any operator has ended yet"
        raise InputError(f"the journal does not tell of operator {operator}: {said}")
    return [entry for entry in told if entry["operator"] == operator]


def key_sentences(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        if entry["decision"] == "scaled":
            before, now = entry["executors_before"], entry["executors"]
            yield f"scaled from {before} to {now} executors: plan {entry['epoch']}"
            continue
        yield (
            f"round {entry['round']}, {entry['planner']}: {entry['decision']} "
            f"(busiest of {entry['executors']} executors {entry['skew_before']:.2f} times the mean)"
        )
        if entry["decision"] == "rebalanced":
            yield (
                f"  {entry['moved_keys']} of {entry['keys']} keys go elsewhere, with {entry['migration_share']:.1%} of "
                f"the state, which stays where it lies; the table has {entry['table']} entries of {entry['table_max']}"
            )
            yield f"  plan {entry['epoch']} from the next batch on, busiest {entry['skew']:.2f} times the mean"
        if entry.get("splits"):
            parts = ", ".join(f"{key} in {ways}" for key, ways in entry["splits"].items())
            yield f"  keys in parts, by their ids: {parts}"
        for what in ("overweight", "remedy", "kept"):
            if what in entry:
                yield f"  {entry[what]}"


def _ratio(high: float, mean: float) -> str:
    return f"{high / mean:.1f}" if mean else "0"
