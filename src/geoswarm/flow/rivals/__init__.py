"""The pipelines of GeoPS beside the engine's own: whole lists tested, and candidates found by the router."""
