"""What operators watch, in Prometheus' text format."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

TIMES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0)


class Metrics:
    """A registry of its own, so that two services in one process do not meet."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "cala_requests", "Answers", ["method", "route", "status"], registry=self.registry
        )
        self.seconds = Histogram(
            "cala_request_seconds",
            "Time to answer",
            ["route"],
            buckets=TIMES,
            registry=self.registry,
        )
        self.batches = Histogram(
            "cala_batch_photos",
            "Photos that went through the encoder together",
            buckets=(1, 2, 4, 8, 16, 32, 64, 128, 256),
            registry=self.registry,
        )
        self.taught = Counter("cala_taught_photos", "Photos taught", registry=self.registry)
        self.waiting = Gauge("cala_waiting_photos", "Photos in the queue", registry=self.registry)
        self.classes = Gauge("cala_classes", "Classes of the model", registry=self.registry)
        self.version = Gauge("cala_model_version", "Version of the model", registry=self.registry)

    def text(self) -> bytes:
        return generate_latest(self.registry)


class Watching:
    """Counts and times every answer by the route that gave it, never by the path as it came."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self.app, self.metrics = app, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        start, status = time.perf_counter(), 500

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            known = ("GET", "HEAD", "POST", "PATCH", "DELETE")
            method = scope["method"] if scope["method"] in known else "other"
            self.metrics.requests.labels(method, route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(time.perf_counter() - start)
