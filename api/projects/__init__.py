"""Routes for a project's settings, and for deleting all data of a subject."""
