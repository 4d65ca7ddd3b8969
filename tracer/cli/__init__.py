"""The `tracer` command: what works over HTTP or on local files. The server adds the rest."""
