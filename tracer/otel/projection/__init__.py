"""Projection: convert the spans of a run to records (`project.project_run`)."""
