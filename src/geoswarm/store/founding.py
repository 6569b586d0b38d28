"""The first start on a folder creates the checkpoint; every later start checks that it was made for the same contract.

The contract is written last: if it is there, all other files were written, and a missing one is an error.
"""

import uuid
from collections.abc import Callable
from dataclasses import replace

from geoswarm.config import Contract
from geoswarm.core.space.grid import Grid
from geoswarm.core.space.plan import Plan
from geoswarm.errors import InputError, SettingsError
from geoswarm.store import manifest, plans
from geoswarm.store.fence import Fence
from geoswarm.store.manifest import EMPTY
from geoswarm.store.storage import Storage

CONTRACT, IDENTITY = "contract.json", "identity.json"


def create_or_check(
    storage: Storage, contract: Contract, executors: int, first_plan: Callable[[Grid, int], Plan], fence: Fence
) -> str:
    """Return the checkpoint's identity. When the folder is made, `first_plan` is called once, with the number of
    executors in the contract, or else with `executors`."""
    if storage.exists(IDENTITY) and "operator" in storage.read_document(IDENTITY):
        raise SettingsError(f"checkpoint {storage.root} is of a KeyedStream, not of an engine: use another")
    if storage.exists(CONTRACT) or manifest.versions(storage) not in ([], [0]):
        _check(storage, contract)
    else:
        number = contract.executors or min(executors, contract.executors_max)
        _create(storage, contract.model_copy(update={"executors": number}), number, first_plan, fence)
    return str(storage.read_document(IDENTITY)["id"])


def _create(
    storage: Storage, contract: Contract, executors: int, first_plan: Callable[[Grid, int], Plan], fence: Fence
) -> None:
    for name in storage.names(plans.PLANS_FOLDER):  # left by a first start that was killed here
        storage.remove(f"{plans.PLANS_FOLDER}/{name}")
    plans.write(storage, first_plan(Grid.of(contract), executors))
    manifest.remove(storage, 0)
    manifest.write(storage, replace(EMPTY, term=fence.term, token=fence.token))
    storage.write_document(IDENTITY, {"id": uuid.uuid4().hex})
    storage.write_document(CONTRACT, contract.model_dump(mode="json"))


def _check(storage: Storage, contract: Contract) -> None:
    held = read_contract(storage)
    fixed = [(name, value) for name, value in contract if name != "executors"]
    different = [f"{k} {getattr(held, k)} there, {v} here" for k, v in fixed if getattr(held, k) != v]
    if different:
        raise SettingsError(
            f"checkpoint {storage.root} was made for another contract ({'; '.join(different)}): "
            "use its values, or start a new checkpoint"
        )
    if contract.executors not in (None, held.executors):  # it may have been scaled to this number since
        number = plans.newest(storage)[0].executors
        if contract.executors != number:
            raise SettingsError(
                f"checkpoint {storage.root} has {number} executors, and {contract.executors} are asked for: leave the "
                f"number out of the contract, and run `geoswarm scale CHECKPOINT {contract.executors}`"
            )


def read_contract(storage: Storage) -> Contract:
    """What the checkpoint was made for, with the number of executors that it had at first."""
    return Contract.model_validate(storage.read_document(CONTRACT))


def open_checkpoint(checkpoint: str | Storage) -> tuple[Storage, Contract]:
    """To ask questions of it: without a lock, while an engine may run."""
    storage = checkpoint if isinstance(checkpoint, Storage) else Storage(checkpoint)
    if not storage.exists(CONTRACT):
        raise InputError(f"{storage.root} is no checkpoint of an engine: give the folder that one uses")
    return storage, read_contract(storage)
