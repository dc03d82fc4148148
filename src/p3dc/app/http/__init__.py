"""The HTTP service: routes, limits, errors."""
