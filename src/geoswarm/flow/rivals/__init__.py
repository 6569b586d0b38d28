"""The other pipelines of GeoPS: they test whole lists, or the router finds candidates."""
