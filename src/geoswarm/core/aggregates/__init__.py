"""Aggregates of subscriptions: what is asked, and the partial results that tasks count and merge."""
