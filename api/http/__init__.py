"""HTTP code that all routes share: parameters, bodies, error responses, conditional requests."""
