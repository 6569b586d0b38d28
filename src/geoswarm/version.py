"""The number of this version, for the package itself and for whoever prints it."""

from pathlib import Path

__version__ = "0.2.0"

SOURCE_FOLDER = str(Path(__file__).resolve().parents[1])
"""The folder that `geoswarm` is imported from: processes that are started apart need it on their path."""
