"""The first start on a folder creates the checkpoint; every later start checks that it was made for the same contract.

The contract is written last: if it is there, all other files were written, and a missing one is an error.
"""

import uuid
from collections.abc import Callable
from dataclasses import replace

from geoswarm.config import Contract
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.errors import SettingsError
from geoswarm.store import manifest, plans
from geoswarm.store.fence import Fence
from geoswarm.store.manifest import EMPTY
from geoswarm.store.storage import Storage

CONTRACT, IDENTITY = "contract.json", "identity.json"


def create_or_check(storage: Storage, contract: Contract, first_plan: Callable[[Grid, int], Plan], fence: Fence) -> str:
    """Return the checkpoint's identity. `first_plan` is called once, when the folder is made."""
    if storage.exists(IDENTITY) and "operator" in storage.read_document(IDENTITY):
        raise SettingsError(f"checkpoint {storage.root} is of a KeyedStream, not of an engine: use another")
    if storage.exists(CONTRACT) or manifest.versions(storage) not in ([], [0]):
        _check(storage, contract)
    else:
        _create(storage, contract, first_plan, fence)
    return str(storage.read_document(IDENTITY)["id"])


def _create(storage: Storage, contract: Contract, first_plan: Callable[[Grid, int], Plan], fence: Fence) -> None:
    for name in storage.names(plans.PLANS_FOLDER):  # left by a first start that was killed here
        storage.remove(f"{plans.PLANS_FOLDER}/{name}")
    plans.write(storage, first_plan(Grid.of(contract), contract.executors))
    manifest.remove(storage, 0)
    manifest.write(storage, replace(EMPTY, term=fence.term, token=fence.token))
    storage.write_document(IDENTITY, {"id": uuid.uuid4().hex})
    storage.write_document(CONTRACT, contract.model_dump(mode="json"))


def _check(storage: Storage, contract: Contract) -> None:
    held = Contract.model_validate(storage.read_document(CONTRACT))
    different = [f"{k} {getattr(held, k)} there, {v} here" for k, v in contract if getattr(held, k) != v]
    if different:
        raise SettingsError(
            f"checkpoint {storage.root} was made for another contract ({'; '.join(different)}): "
            "use its values, or start a new checkpoint"
        )
