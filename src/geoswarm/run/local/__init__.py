"""The engine in one process, without Java: the same stages, checkpoint and promises."""
