"""How many tasks a Spark cluster runs at once: now, and at most.

A logical executor is a task of each batch, so this is the number that can work side by side.
"""

from pyspark.sql import SparkSession


def task_slots(spark: SparkSession) -> int:
    """The tasks that run at once. Executors that have not registered yet count as far as the settings name them."""
    conf = spark.sparkContext.getConf()
    asked = int(conf.get("spark.executor.instances", "0")) * int(conf.get("spark.executor.cores", "1"))
    return max(spark.sparkContext.defaultParallelism, asked)


def slots_max(spark: SparkSession) -> int | None:
    """The most tasks that will run at once; None where Spark adds executors as there are more tasks."""
    conf = spark.sparkContext.getConf()
    if conf.get("spark.dynamicAllocation.enabled", "false") == "true":
        return None
    return task_slots(spark)
