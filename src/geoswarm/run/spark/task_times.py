"""The CPU time of Spark's own side of a task: reading the exchange, feeding the Python worker, writing its rows.

A worker cannot see it. Spark's status store has it for each task that has ended, also without a user interface.
"""

import json
from collections import defaultdict
from collections.abc import Collection

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import TaskContext
from pyspark.sql import SparkSession

from geoswarm.flow.observe import TaskName

TASKS_MAX = 100_000
"""Tasks of a stage that are asked for."""
WAIT_MS_MAX = 2000
"""Milliseconds for Spark to note the ends of its last tasks. It takes 1 to 10; later, they are left out this time."""


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
        mapper = java.org.apache.spark.status.api.v1.JacksonMessageWriter().mapper()
        for stage, numbers in wanted.items():
            for attempt in range(context.statusStore().lastStageAttempt(stage).attemptId() + 1):
                # As text: asking for each number of each task would be a call each.
                text = mapper.writeValueAsString(context.statusStore().taskList(stage, attempt, TASKS_MAX))
                for task in json.loads(text):
                    if task["taskId"] in numbers and "taskMetrics" in task:
                        cpu_us = task["taskMetrics"]["executorCpuTime"] // 1000
                        found[TaskName(stage, task["taskId"])] = cpu_us
    except Py4JError:  # none of this is public: then balance by what workers measure
        return {}
    return found
