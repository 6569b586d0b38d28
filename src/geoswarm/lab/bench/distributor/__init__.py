"""Distributor: Dynamic Load Balancing in Stream Processing Pipelines Containing Stream-Static Joins."""
