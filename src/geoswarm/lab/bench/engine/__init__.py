"""geoswarm's own: figures of no paper."""
