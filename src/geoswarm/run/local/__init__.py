"""The engine in one process, without Java: the same stages, checkpoint and guarantees. Exports its sources."""

from geoswarm.run.local.sources import events_from_files, from_tables, from_workload, operations_from_files

__all__ = ["events_from_files", "from_tables", "from_workload", "operations_from_files"]
