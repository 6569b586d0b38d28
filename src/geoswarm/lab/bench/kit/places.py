"""Places that several experiments share."""

US = (-125.0, 24.0, -66.0, 50.0)
"""The United States between its coasts, as SWARM and PS2Stream have it."""
