"""ASGI middleware: the request log, authentication, and changes to responses.

`api.app` installs them and determines their order. gRPC requests pass none of them, so `api.otlp`
uses their functions.

Public modules:

- `authentication`: who calls, and whether the server admits the caller
"""

from api.middleware.request_log import RequestLog, log_request, request_id
from api.middleware.responses import (
    BodyLimit,
    Compression,
    ErrorResponses,
    ETags,
    OtlpOrigins,
    ResponseHeaders,
    UnknownPages,
)

__all__ = [
    "BodyLimit",
    "Compression",
    "ETags",
    "ErrorResponses",
    "OtlpOrigins",
    "RequestLog",
    "ResponseHeaders",
    "UnknownPages",
    "log_request",
    "request_id",
]
