"""The simulated part of `auto.py`: SWARM's hotspots, with what an event costs on the engine under each strategy.

All strategies have the same number of machines; in SWARM's own figures `replicated` has those of the routers, too. What
an event takes at least (`base_us`) is the CPU time of whole tasks that the engine measured under the same strategy
before the step, so a strategy that is dearer there is dearer here. The few queries of that time are in it, and the
simulator adds those of its own. Strategies that draw from a sample have one of the calm, as in SWARM §6.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, cast

from geoswarm.lab.bench.kit.harness import Progress
from geoswarm.lab.bench.swarm.fig12_to_16 import TimelineSizes, hotspot_world, run_contestants
from geoswarm.lab.workload.hotspots import Hotspots
from geoswarm.run.sim.cluster import Cluster, ClusterSetup
from geoswarm.run.sim.race import cluster
from geoswarm.run.sim.service import Service
from geoswarm.run.sim.spans import total


class SimSizes(NamedTuple):
    scenarios: tuple[str, ...]
    world: TimelineSizes
    machines: int
    minutes: float
    """From the hotspot's start on."""


def simulate(
    sizes: SimSizes, event_us: Mapping[str, float], seed: int, report: Progress
) -> dict[str, dict[str, float]]:
    """Units of work of each strategy in each scenario, from the hotspot's start on. `event_us` has the strategies."""
    found = {}
    for scenario in sizes.scenarios:
        report(f"{scenario}, simulated")
        world = hotspot_world(scenario, sizes.world, seed)
        start_s = cast(Hotspots, world.workload).spots[0].start_s
        clusters = [cluster(name, world, _priced_setup(sizes.machines, us)) for name, us in event_us.items()]
        run_contestants(world, clusters, start_s + 60.0 * sizes.minutes, lambda _: None)
        found[scenario] = {c.name: _work_since(c, start_s) for c in clusters}
    return found


def _priced_setup(machines: int, event_us: float) -> ClusterSetup:
    service = replace(Service(), base_us=event_us)
    return ClusterSetup(executors=machines, routers_serve=False, batches=True, service=service)


def _work_since(one: Cluster, start_s: float) -> float:
    return total([span for span in one.spans if span.start_s >= start_s]).units_of_work


def sim_rows(found: Mapping[str, Mapping[str, float]], names: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"world": f"{scenario}, simulated", "strategy": name, "units_of_work": found[scenario][name]}
        for scenario in found
        for name in names
    ]
