"""Regions that are no rectangles: polygons with holes and parts, circles on the sphere; read, covered, tested."""
