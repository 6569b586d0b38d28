"""geoswarm: millions of standing geo-subscriptions meet a stream on Spark, and every match goes out once.

The package as an object: `import geoswarm as gs`, then `gs.Engine`, `gs.Contract`, ... Names that need Spark or numba
are loaded when they are first used.
"""

from importlib import import_module
from typing import Any

from geoswarm.config import Contract, KeyTuning, Tuning

__version__ = "0.1.0"

_LATER = {
    "Engine": "geoswarm.spark.engine",
    "build_session": "geoswarm.spark.session",
    "sinks": "geoswarm.spark.sinks",
    "sources": "geoswarm.spark.sources",
    "tweets_stream": "geoswarm.spark.generator",
    "posts_stream": "geoswarm.spark.generator",
    "Tweets": "geoswarm.workload.tweets",
    "Posts": "geoswarm.workload.posts",
    "Sample": "geoswarm.control.strategy",
    "GuardRules": "geoswarm.guard.rules",
    "GuardSettings": "geoswarm.guard.limits",
    "KeySource": "geoswarm.state.key_source",
    "join": "geoswarm.spark.batch_join",
    "KeyedStream": "geoswarm.spark.keyed_stream",
    "Stage": "geoswarm.spark.stages",
    "operators": "geoswarm.flow.keyed.operators",
}

__all__ = ["Contract", "KeyTuning", "Tuning", *_LATER]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"geoswarm has no {name!r}: it has {', '.join(__all__)}")
    module = import_module(_LATER[name])
    return module if module.__name__.endswith(f".{name}") else getattr(module, name)
