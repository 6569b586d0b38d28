"""Guard: who steers the balancing by registering and cancelling. No Spark, no files, no clock."""
