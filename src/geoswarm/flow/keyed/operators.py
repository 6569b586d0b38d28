"""All keyed operators by name, for users: `gs.operators.Count(key="word", window=5)`. Each has its own file."""

from geoswarm.flow.keyed.count import Count, WordCount
from geoswarm.flow.keyed.delivery import Delivery
from geoswarm.flow.keyed.operator import Operator
from geoswarm.flow.keyed.own import Own, PerKey
from geoswarm.flow.keyed.self_join import SelfJoin
from geoswarm.flow.keyed.trending import Trending

__all__ = ["Count", "Delivery", "Operator", "Own", "PerKey", "SelfJoin", "Trending", "WordCount"]
