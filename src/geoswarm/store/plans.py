"""Plans on disk: one sealed file per epoch, written once.

A manifest names the plan of its batch by epoch and seal, so that a worker which kept a plan in memory, or a checkpoint
that was restored from an older copy, can never route by another plan of the same number.
"""

from geoswarm.core.space.plan import Plan
from geoswarm.errors import CorruptState
from geoswarm.store.storage import Storage

PLANS_FOLDER = "plans"
KEPT_MAX = 1000
"""The number of plans kept. Older ones are kept for inspection only; one is about 60 bytes per partition."""


def write(storage: Storage, plan: Plan) -> str:
    """Write a plan and return its seal. An epoch that exists belongs to another engine."""
    return storage.write_document(_name(plan.epoch), plan.to_json(), replace=False)


def read(storage: Storage, epoch: int, seal: str) -> Plan:
    body, held = storage.read_sealed(_name(epoch))
    if held != seal:
        raise CorruptState(f"plan {epoch} in {storage.root} is not the one that its batch was routed by: restore it")
    return Plan.from_json(body)


def at(storage: Storage, epoch: int) -> Plan:
    """A plan for inspection; to route by a plan, use `read`, which checks its seal."""
    return Plan.from_json(storage.read_document(_name(epoch)))


def newest(storage: Storage) -> tuple[Plan, str]:
    names = storage.names(PLANS_FOLDER)
    if not names:
        raise CorruptState(f"no plan is left in {storage.root}/{PLANS_FOLDER}: restore it from a backup")
    body, seal = storage.read_sealed(f"{PLANS_FOLDER}/{names[-1]}")
    return Plan.from_json(body), seal


def forget_old(storage: Storage) -> None:
    for name in storage.names(PLANS_FOLDER)[:-KEPT_MAX]:
        storage.remove(f"{PLANS_FOLDER}/{name}")


def _name(epoch: int) -> str:
    return f"{PLANS_FOLDER}/{epoch:010d}.json"
