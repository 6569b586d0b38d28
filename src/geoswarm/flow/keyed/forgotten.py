"""Objects that are forgotten while they are inside: subscriptions that asked for `ended` are told so, with the reason
`silent`.

An object without events is forgotten with the first batch at which its last one is out of the window (`object_ttl_s`).
Those of enter, exit and dwell that it counts as inside of then, and that are live, get one alert, with the ts and the
place of its last fix, when its stay began, and the next number of its sequence. If it sends events in that batch, they
come after it, and begin anew. `life_work.py` calls this at the end of an interval.
"""

import numpy as np
import pyarrow as pa

from geoswarm.core.arrays.jit import Ints
from geoswarm.core.subscriptions.ending import TELLS_ENDED
from geoswarm.core.subscriptions.trigger import RulesLookup
from geoswarm.flow.keyed.object_pairs import OpenPairs, PairCodes
from geoswarm.flow.keyed.state_lists import flat_lists
from geoswarm.flow.keyed.told_rows import Telling, ToldPairs
from geoswarm.model import CROSS, INSIDE


def find_forgotten(held: pa.RecordBatch, lookup: RulesLookup, telling: Telling) -> ToldPairs:
    """`held` is the newest state of the objects that are forgotten."""
    subs, offsets = flat_lists(held.column("subs"))
    since_us = flat_lists(held.column("since_us"))[0]
    groups: Ints = np.repeat(np.arange(len(held)), np.diff(offsets))
    ids, place = np.unique(subs, return_inverse=True)
    on = lookup(ids).on
    asks = (telling.notify(ids) & TELLS_ENDED > 0) & (on != INSIDE) & (on != CROSS)
    chosen = np.flatnonzero(asks[place])
    chosen = chosen[np.lexsort((subs[chosen], groups[chosen]))]
    groups, subs, known = groups[chosen], subs[chosen], OpenPairs.of(held)
    found = known.find(PairCodes.of(subs), groups, subs)
    seen_us = held.column("seen_us").to_numpy()[groups]
    return ToldPairs(groups, subs, since_us[chosen], known.next_numbers(found, seen_us, telling.sequence_us))
