"""The package of the distribution `tracer-lineage-server`. A wheel contains the server in it."""
