"""All strategies through one world: a virtual cluster for each, fed the same steps.

What a cluster does is in `cluster.py`. Strategies come from the engine's own registry.
"""

from collections.abc import Callable, Iterable, Iterator

from geoswarm.control.balance.static import Static
from geoswarm.control.coordinator import Coordinator
from geoswarm.control.registry import strategy
from geoswarm.control.strategy import PlansBatches, Strategy, draws_from_sample
from geoswarm.core.space.plan import Plan
from geoswarm.run.sim.cluster import Cluster, ClusterSetup, no_clock
from geoswarm.run.sim.routing import ByBatch, ByPlan, ByTask, Routing
from geoswarm.run.sim.world import World

STRATEGY_NAMES = (
    "replicated",
    "static-uniform",
    "static-history",
    "swarm",
    "swarm-measured",
    "over-partitioned",
    "per-batch",
    "per-batch-weighed",
)
"""SWARM's rivals and SWARM in the order of the paper, then ours; `control/registry.py` has them all."""


def cluster(name: str, world: World, setup: ClusterSetup, cpu_s: Callable[[], float] = no_clock) -> Cluster:
    """A cluster that runs the strategy of this name, from its first plan."""
    kind = strategy(name)
    sample = world.sample() if draws_from_sample(kind) else None
    executors = setup.executors + (setup.routers if name == "replicated" and setup.routers_serve else 0)
    plan = kind.first_plan(world.grid, executors, sample)
    routing = _routing(kind, plan, world, setup, cpu_s)
    return Cluster(world, setup, name, routing, None if isinstance(kind, Static) else Coordinator(kind), cpu_s)


def _routing(kind: Strategy, plan: Plan, world: World, setup: ClusterSetup, cpu_s: Callable[[], float]) -> Routing:
    if isinstance(kind, PlansBatches):
        return ByBatch(kind, plan, world, setup.service, cpu_s)
    if kind.name == "over-partitioned":
        return ByTask(plan, setup.executors, setup.service)
    return ByPlan(plan, waits=setup.batches)


def race(world: World, clusters: Iterable[Cluster], horizon_s: float) -> Iterator[float]:
    """Runs all clusters through one world, step by step; yields the simulated time."""
    contestants = list(clusters)
    for step in world.steps(horizon_s):
        for cluster in contestants:
            cluster.advance(step)
        yield step.start_s + world.step_s
