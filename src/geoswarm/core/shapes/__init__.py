"""Regions that are not rectangles (polygons with holes and parts, circles on the sphere): read, covered, tested."""
