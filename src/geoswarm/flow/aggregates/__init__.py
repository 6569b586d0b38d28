"""Aggregates in the data plane: events are counted where they are matched, counts are merged where their state is."""
