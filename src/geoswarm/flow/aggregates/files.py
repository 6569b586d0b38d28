"""Which files of an aggregate's state are read in a batch. Most are not: rows are only filed until something is due.

A file that is due is *taken apart*: each executor that has keys in it gives the windows that are over and writes what
is still needed to a file of its own, and the old one goes. So files are few, hold nothing that is over, and need no
other way to expire. All executors have a turn in every batch, and all of them see the same files due.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from geoswarm.flow.aggregates.live import PANES, SESSIONS, kind_of_part
from geoswarm.flow.keyed.state import StateFile

OLD_PLANS_MAX = 3
"""Plans before the present one whose files may stay as they are. Each executor must look for its keys in all of these,
so when there are more plans, these files are taken apart, too."""


@dataclass(frozen=True)
class FilesAtHand:
    """The files of the state before a batch, as one executor sees them."""

    taken: tuple[StateFile, ...]
    """To be taken apart, as far as the executor has keys in them."""
    own: tuple[StateFile, ...]
    """The executor's own, written under the present plan, that stay."""
    old: tuple[StateFile, ...]
    """Those of older plans that stay; the executor may have keys in any of them."""


def sort_files(files: Sequence[StateFile], watermark_us: int, epoch: int, executor: int) -> FilesAtHand:
    taken = {file.name for file in files_to_take(files, watermark_us, epoch)}
    mine = [file for file in files if file.epoch != epoch or file.executor == executor]
    stay = [file for file in mine if file.name not in taken]
    return FilesAtHand(
        tuple(file for file in mine if file.name in taken),
        tuple(file for file in stay if file.epoch == epoch),
        tuple(file for file in stay if file.epoch != epoch),
    )


def files_to_take(files: Sequence[StateFile], watermark_us: int, epoch: int) -> list[StateFile]:
    """The files that are due, and those of old plans if there are too many of these. A session may have rows in several
    files, and is over only if the last one of them is: where one file is due, all that may have the same keys are."""
    is_crowded = len({file.epoch for file in files} - {epoch}) > OLD_PLANS_MAX
    due = [file for file in files if file.due_us is not None and file.due_us <= watermark_us]
    sessions = [file for file in files if kind_of_part(file.part) == SESSIONS]
    moved = {file.part for file in sessions if file.epoch != epoch}
    due_parts = {_sharers(file, moved) for file in due if kind_of_part(file.part) == SESSIONS}
    return [
        file
        for file in files
        if (is_crowded and file.epoch != epoch)
        or (file in due and kind_of_part(file.part) == PANES)
        or (kind_of_part(file.part) == SESSIONS and _sharers(file, moved) in due_parts)
    ]


def _sharers(file: StateFile, moved: Iterable[int]) -> tuple[int, int]:
    """Equal for files that may have rows of the same keys; `moved` are the parts with files of several plans."""
    return file.part, -1 if file.part in moved else file.executor
