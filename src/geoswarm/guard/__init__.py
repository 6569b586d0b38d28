"""Guard finds users who steer the balancing by registering and cancelling. No Spark, no files, no clock."""
