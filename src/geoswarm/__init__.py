"""geoswarm: millions of standing geo-subscriptions meet a stream on Spark, and every match goes out once.

The package as an object: `import geoswarm as gs`, then `gs.Engine`, `gs.Contract`, ... Names that need Spark or numba
are loaded when they are first used.
"""

from importlib import import_module
from typing import Any

from geoswarm.config import Contract, KeyTuning, Tuning

__version__ = "0.1.0"

_LATER = {
    "Engine": "geoswarm.run.spark.engine",
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
    "Stage": "geoswarm.run.stages",
    "operators": "geoswarm.flow.keyed.operators",
}

__all__ = ["Contract", "KeyTuning", "Tuning", *_LATER]


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"geoswarm has no {name!r}: it has {', '.join(__all__)}")
    module = import_module(_LATER[name])
    return module if module.__name__.endswith(f".{name}") else getattr(module, name)
