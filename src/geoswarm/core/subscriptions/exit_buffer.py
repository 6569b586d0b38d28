"""How far outside an object must be before it is out, as an attribute: `exit_buffer_m`, beside enter, exit and dwell.

The value is whole millimetres; 0: the border is where it ends. `flow/keyed/transitions.py` has the rule, and
`flow/keyed/nearby.py` measures.
"""

from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Ints
from geoswarm.core.shapes.circle import is_degrees
from geoswarm.core.subscriptions.attribute_kind import Column, Inspection
from geoswarm.core.subscriptions.rare_numbers import RareNumberAttribute
from geoswarm.core.subscriptions.trigger import is_on, is_on_inside

EXIT_BUFFER_M_MAX = 100_000.0
"""A hundred kilometres: more is another region."""
MILLIMETRES = 1000.0


class ExitBufferAttribute(RareNumberAttribute):
    name = "exit_buffer"
    default = 0
    columns = (
        Column(
            "exit_buffer_m",
            pa.float64(),
            "of a transition: an object goes out only when it is more metres outside; null: 0",
        ),
    )
    reasons: ClassVar[Mapping[str, str]] = {"exit_buffer": "exit_buffer_m cannot be used, or there is nothing for it"}

    def parse(self, inspection: Inspection) -> Ints:
        given = ~inspection.is_null("exit_buffer_m")
        if not given.any():
            return np.zeros(len(given), np.int64)
        metres, turn_away = inspection.floats("exit_buffer_m"), inspection.refusals.turn_away
        given &= inspection.puts
        with np.errstate(invalid="ignore"):
            fine = (metres * MILLIMETRES >= 1.0) & (metres <= EXIT_BUFFER_M_MAX)
        who = "exit_buffer_m of subscription {sub_id} is {exit_buffer_m}: "
        detail = who + f"write 0.001 to {EXIT_BUFFER_M_MAX:.0f} metres, or leave it out"
        turn_away(given & ~fine, self.name, detail)
        detail = who + "it is measured in longitude and latitude, which the bounds of this world are not: leave it out"
        turn_away(given & np.full(len(given), not is_degrees(inspection.grid)), self.name, detail)
        detail = "subscription {sub_id} has exit_buffer_m {exit_buffer_m} and is on inside, which reports every event: "
        detail += "send on = enter, exit or dwell(SECONDS) with it, or leave exit_buffer_m out"
        turn_away(given & is_on_inside(inspection), self.name, detail)
        detail = "subscription {sub_id} has exit_buffer_m {exit_buffer_m} and is on cross, from which nobody goes out: "
        turn_away(given & is_on("cross", inspection), self.name, detail + "leave exit_buffer_m out")
        return np.where(given & fine, np.rint(np.nan_to_num(metres, posinf=0.0) * MILLIMETRES), 0.0).astype(np.int64)

    def show(self, values: Ints) -> dict[str, pa.Array]:
        return {"exit_buffer_m": pa.array(values / MILLIMETRES, mask=values == 0)}
