"""Settings of a project, and erasure of subjects."""
