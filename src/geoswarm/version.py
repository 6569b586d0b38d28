"""The number of this version."""

from pathlib import Path

__version__ = "0.2.0"

SOURCE_FOLDER = str(Path(__file__).resolve().parents[1])
"""The folder that `geoswarm` is imported from: processes that geoswarm starts need it on their path."""
