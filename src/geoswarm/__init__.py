"""geoswarm: match a stream of located events with millions of subscriptions on Spark; every match is delivered once.

The package as an object: `import geoswarm as gs`, then `gs.Engine`, `gs.Contract`, ... Names that need Spark or numba
are imported when they are first used. They are listed twice: once for type checkers, which follow imports only, and
once in `_LATER`, for lookup at run time. `tests/docs/test_public_names.py` compares the two.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from geoswarm.config import AggregateSettings, Contract, KeyTuning, Tuning, WindowSettings
from geoswarm.version import __version__

if TYPE_CHECKING:
    from geoswarm.control.strategy import Sample as Sample
    from geoswarm.flow.keyed import operators as operators
    from geoswarm.guard.limits import GuardSettings as GuardSettings
    from geoswarm.guard.rules import GuardRules as GuardRules
    from geoswarm.lab.workload.posts import Posts as Posts
    from geoswarm.lab.workload.tweets import Tweets as Tweets
    from geoswarm.run import local as local
    from geoswarm.run import sinks as sinks
    from geoswarm.run.collection import Subscriptions as Subscriptions
    from geoswarm.run.local.engine import LocalEngine as LocalEngine
    from geoswarm.run.local.keyed_stream import LocalKeyedStream as LocalKeyedStream
    from geoswarm.run.past import Past as Past
    from geoswarm.run.side_stages import Stage as Stage
    from geoswarm.run.spark import sources as sources
    from geoswarm.run.spark.batch_join import join as join
    from geoswarm.run.spark.engine import Engine as Engine
    from geoswarm.run.spark.generator import posts_stream as posts_stream
    from geoswarm.run.spark.generator import tweets_stream as tweets_stream
    from geoswarm.run.spark.keyed_stream import KeyedStream as KeyedStream
    from geoswarm.run.spark.past_frames import past_frame as past_frame
    from geoswarm.run.spark.session import build_session as build_session
    from geoswarm.store.key_source import KeySource as KeySource

_LATER = {
    "Engine": "geoswarm.run.spark.engine",
    "LocalEngine": "geoswarm.run.local.engine",
    "LocalKeyedStream": "geoswarm.run.local.keyed_stream",
    "local": "geoswarm.run.local",
    "build_session": "geoswarm.run.spark.session",
    "sinks": "geoswarm.run.sinks",
    "sources": "geoswarm.run.spark.sources",
    "tweets_stream": "geoswarm.run.spark.generator",
    "posts_stream": "geoswarm.run.spark.generator",
    "Tweets": "geoswarm.lab.workload.tweets",
    "Posts": "geoswarm.lab.workload.posts",
    "Sample": "geoswarm.control.strategy",
    "GuardRules": "geoswarm.guard.rules",
    "GuardSettings": "geoswarm.guard.limits",
    "KeySource": "geoswarm.store.key_source",
    "join": "geoswarm.run.spark.batch_join",
    "KeyedStream": "geoswarm.run.spark.keyed_stream",
    "Stage": "geoswarm.run.side_stages",
    "Past": "geoswarm.run.past",
    "Subscriptions": "geoswarm.run.collection",
    "past_frame": "geoswarm.run.spark.past_frames",
    "operators": "geoswarm.flow.keyed.operators",
}
"""The module of each public name, or the module that the name is."""

__all__ = ["AggregateSettings", "Contract", "KeyTuning", "Tuning", "WindowSettings", "__version__", *_LATER]


def __dir__() -> list[str]:
    return sorted(__all__)


if not TYPE_CHECKING:  # a type checker would accept any name, as of type `object`

    def __getattr__(name: str) -> object:
        if name not in _LATER:
            raise AttributeError(f"geoswarm has no {name!r}: it has {', '.join(__all__)}")
        module = import_module(_LATER[name])
        return module if module.__name__.endswith(f".{name}") else getattr(module, name)
