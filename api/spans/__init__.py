"""The route that lists the spans of a run."""
