"""Routes for the leases of recorders."""
