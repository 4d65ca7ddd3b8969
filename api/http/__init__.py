"""What all routes share of HTTP: parameters, bodies, problems, conditional requests."""
