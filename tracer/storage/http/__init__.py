"""A store that writes to a server over HTTP."""
