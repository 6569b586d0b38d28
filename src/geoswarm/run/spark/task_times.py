"""The CPU time of Spark's own side of a task: reading the exchange, feeding the Python worker, writing its rows.

A worker cannot see it. Spark's status store has it for each task that has ended, also without a user interface.
"""

import json
from collections import defaultdict
from collections.abc import Collection
from typing import Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext, TaskContext
from pyspark.sql import SparkSession

from geoswarm.flow.observe import TaskName

TASKS_MAX = 100_000
"""Tasks of a stage that are asked for."""
ID, CPU_NS = "taskId", "executorCpuTime"
"""As Spark calls them."""
WAIT_MS_MAX = 200
"""Milliseconds for Spark, and whoever else listens to it, to note the ends of its last tasks. It takes 1 to 10; where
it takes longer, nothing is known of this batch."""


def name_task() -> TaskName:
    """The task that calls it."""
    context = TaskContext.get()
    assert context is not None, "only a task has a name"
    return TaskName(context.stageId(), context.taskAttemptId())


def jvm_cpu_us(spark: SparkSession, tasks: Collection[TaskName]) -> dict[TaskName, int]:
    """The CPU time of each task in the JVM, without tasks that Spark does not know (any more)."""
    wanted: dict[int, set[int]] = defaultdict(set)
    for task in tasks:
        wanted[task.stage].add(task.number)
    context, java = spark.sparkContext._jsc.sc(), spark.sparkContext._jvm
    assert java is not None
    found: dict[TaskName, int] = {}
    try:
        context.listenerBus().waitUntilEmpty(WAIT_MS_MAX)
        mapper = _mapper_of(spark.sparkContext, java)
        for stage, numbers in wanted.items():
            for attempt in range(context.statusStore().lastStageAttempt(stage).attemptId() + 1):
                # One call for all tasks, and a short answer: beyond 8 kB it would come in two pieces, 40 ms apart.
                ended = mapper.valueToTree(context.statusStore().taskList(stage, attempt, TASKS_MAX))
                ids, cpu_ns = (json.loads(ended.findValuesAsText(name).toString()) for name in (ID, CPU_NS))
                if len(ids) != len(cpu_ns):  # a task that has not ended has no time
                    every = [json.loads(ended.get(i).toString()) for i in range(ended.size())]
                    done = [task for task in every if "taskMetrics" in task]
                    ids, cpu_ns = [task[ID] for task in done], [task["taskMetrics"][CPU_NS] for task in done]
                times = zip(ids, cpu_ns, strict=True)
                found |= {TaskName(stage, task): ns // 1000 for task, ns in times if task in numbers}
    except (Py4JError, TypeError, KeyError, ValueError, AttributeError):
        return {}  # none of this is public, and a class that is not there cannot be called
    return found


def _mapper_of(context: SparkContext, java: Any) -> Any:
    """What turns tasks into trees; it takes a while to make."""
    if context not in _mappers:
        _mappers[context] = java.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()
    return _mappers[context]


_mappers: WeakKeyDictionary[SparkContext, Any] = WeakKeyDictionary()
