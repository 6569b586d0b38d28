"""The command line and what it needs: settings from a file, a live view of the journal, a look at the machine."""

from geoswarm.service.cli.commands import app

__all__ = ["app"]
