"""The command line: its commands, the settings file, and the live view of a run."""

from geoswarm.service.cli.commands import app

__all__ = ["app"]
