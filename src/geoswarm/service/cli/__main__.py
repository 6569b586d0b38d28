"""`python -m geoswarm.service.cli`, where the installed command is out of reach."""

from geoswarm.service.cli.commands import app

app()
