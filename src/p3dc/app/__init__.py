"""The page and the service: ``p3dc serve``."""
