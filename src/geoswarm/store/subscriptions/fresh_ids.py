"""An id for a subscription that was given none: a random number from 1 to 2^63 - 1 that no live subscription has.

It is drawn before the operation is written, so that the caller knows it: a counter in the checkpoint would have to be
committed first, and could meet ids that others chose. Of a hundred million live ids it meets one with a probability of
1e-11, and then draws again. Another operation under way may have it with 1e-19; it becomes a dead letter `duplicate`.
"""

from collections.abc import Callable
from uuid import UUID

import numpy as np

from geoswarm.store.subscriptions.view import View, find_live

ID_BITS = 63


def fresh_text(draw: Callable[[int], int]) -> str:
    """The same where ids are texts: a random UUID, which no other has."""
    return str(UUID(int=draw(128), version=4))


def fresh_id(view: View, now_us: int, draw: Callable[[int], int]) -> int:
    """`draw` gives a random number of so many bits."""
    while True:
        drawn = draw(ID_BITS)
        if drawn > 0 and find_live(view, np.array([drawn], np.int64), now_us)[0, 0] < 0:
            return drawn
