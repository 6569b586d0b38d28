"""The way from events to matches, on any runner: each event to its executors, and there to its subscriptions.

What a task does at each step is in `flow/stages/`; `pipeline.py` has what comes before and after.
"""

from geoswarm.control.balance.static import OverPartitioned
from geoswarm.core.space.plan import Plan
from geoswarm.flow.exchange import PACKED
from geoswarm.flow.merge import match_schema
from geoswarm.flow.stages.match import match_events, match_parts
from geoswarm.flow.stages.merge import merge_parts
from geoswarm.flow.stages.route import EXECUTOR, route_packed, route_unpacked, send_subscriptions
from geoswarm.flow.stages.task import BatchTask
from geoswarm.run.rows import Rows


def exchange(events: Rows, task: BatchTask) -> Rows:
    """Send events to their executors, as parcels or as single rows; with `join_at` "stream", subscriptions, too."""
    # Where executors were shared out, it is known how many tasks: there may be more slots by now, and none for them.
    tasks = max(task.task_of) + 1 if task.task_of else match_tasks(events, task.plan())
    if not task.packs:
        return events.map(route_unpacked(task), task.events.append(EXECUTOR)).exchange(tasks, task.task_of)
    routed = events.map(route_packed(task), PACKED)
    if task.is_at_stream:
        slots = events.numbers(len(task.plan().partitions))
        routed = routed.union(slots.map(send_subscriptions(task), PACKED))
    return routed.exchange(tasks, task.task_of)


def match(exchanged: Rows, task: BatchTask) -> Rows:
    """The matches: the event's own columns and `sub_ids`, or `sub_id` when pairs are asked for. If objects are
    followed, also the events that matched no subscription."""
    matches = match_schema(task.events, task.shape)
    if not task.splits_events:
        return exchanged.map(match_events(task), matches)
    parts = exchanged.map(match_parts(task), PACKED).exchange(match_tasks(exchanged, task.plan()))
    return parts.map(merge_parts(task), matches)


def match_tasks(rows: Rows, plan: Plan) -> int:
    """The number of tasks that match these rows."""
    if plan.drawn_by == OverPartitioned.name:
        return plan.executors  # it leaves the levelling to the runner, which has a task for each to hand out
    return rows.tasks_for(plan.executors)
