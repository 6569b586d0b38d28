"""`python -m geoswarm.cli`, where the installed command is out of reach."""

from geoswarm.cli.commands import app

app()
