"""Counters of the service, for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """Counters of one server."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self.n_arriving = self.n_busy = 0
        labels = ("route", "method", "status")
        self._requests = Counter("p3dc_requests", "Requests answered.", labels, registry=self._registry)
        self._seconds = Histogram(
            "p3dc_request_seconds", "Time to the answer.", ("route",), buckets=SECONDS, registry=self._registry
        )
        gauges = {
            "p3dc_requests_busy": "Requests that are being answered.",
            "p3dc_images": "Images embedded.",
            "p3dc_batches": "Batches that the network was given.",
            "p3dc_classes": "Classes in the project.",
            "p3dc_photos": "Photos in the project.",
        }
        self._gauges = {name: Gauge(name, text, registry=self._registry) for name, text in gauges.items()}

    def answered(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request that has been answered."""
        known = method if method in ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS") else "other"
        self._requests.labels(route, known, str(status)).inc()
        self._seconds.labels(route).observe(seconds)

    def text(self, *, images: int, batches: int, classes: int, photos: int) -> bytes:
        """Return all counters as text."""
        values = (self.n_busy, images, batches, classes, photos)
        for gauge, value in zip(self._gauges.values(), values, strict=True):
            gauge.set(value)
        return generate_latest(self._registry)
