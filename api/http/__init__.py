"""HTTP code that all routes share: parameters, bodies, problems, conditional requests."""
