"""`python -m geoswarm.service.cli`, for where the command `geoswarm` is not installed."""

from geoswarm.service.cli.commands import app

app()
