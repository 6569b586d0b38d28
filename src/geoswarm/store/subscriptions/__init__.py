"""The subscriptions of one version, and how operations make the next version of them.

`view.py` shows a version, `store.py` makes the next one, `replay.py` decides the outcome of operations on one id, and
`door_protocol.py` declares what Guard may refuse. `store/merging/` merges segments. Nothing here knows about batches or
Spark.
"""

from geoswarm.store.subscriptions.churn import Churn as Churn
from geoswarm.store.subscriptions.store import Store as Store
from geoswarm.store.subscriptions.view import View as View
