"""Routes that receive OpenTelemetry data (OTLP): traces, logs and metrics, over HTTP and gRPC.

Both protocols use the same functions: decode, check the scope, write, and answer when the spans are
committed.
"""

from api.otlp.grpc_server import GrpcAddress, grpc_serving
from api.otlp.routes import PLAIN_ROUTES, router

__all__ = [
    "PLAIN_ROUTES",
    "GrpcAddress",
    "grpc_serving",
    "router",
]
