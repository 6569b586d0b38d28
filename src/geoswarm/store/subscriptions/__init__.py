"""The subscriptions of one version, and how operations make the next version of them.

`view.py` shows a version, `store.py` makes the next one, `replay.py` decides the outcome of operations on one id,
`merge.py` which segments to merge, and `door_protocol.py` declares what Guard may refuse. Nothing here knows about
batches or Spark.
"""

from geoswarm.store.subscriptions.churn import Churn as Churn
from geoswarm.store.subscriptions.store import Store as Store
from geoswarm.store.subscriptions.view import View as View
