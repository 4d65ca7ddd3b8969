"""Projection: the spans of one run become records (`rows.project_run`)."""
