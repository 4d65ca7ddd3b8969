# The server with its viewer, without an embedded Postgres. Three stages: viewer, programs, result.
ARG PYTHON=python:3.13-slim
ARG NODE=node:24-slim

FROM ${NODE} AS viewer
WORKDIR /src/web
COPY web/package.json web/package-lock.json web/.npmrc ./
RUN npm ci --no-audit --no-fund
COPY web ./
RUN npm run build

FROM ${PYTHON} AS programs
WORKDIR /src
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PIP_ROOT_USER_ACTION=ignore
COPY requirements-runtime.lock requirements-build.lock ./
RUN python -m venv --without-pip /opt/tracer \
    && python -m pip --python /opt/tracer/bin/python install --require-hashes -r requirements-runtime.lock \
    && python -m venv /opt/build \
    && /opt/build/bin/pip install --require-hashes -r requirements-build.lock
COPY pyproject.toml LICENSE README.md ./
COPY server server
COPY tracer tracer
COPY api api
COPY examples/health examples/health
COPY migrations migrations
COPY --from=viewer /src/api/static api/static
RUN /opt/build/bin/hatchling build --target wheel --directory /dist \
    && cd server && /opt/build/bin/hatchling build --target wheel --directory /dist \
    && python -m pip --python /opt/tracer/bin/python install --no-deps /dist/*.whl
# Debug symbols are a sixth of all. Libraries that a wheel brings along were edited and must stay.
RUN apt-get update && apt-get install --yes --no-install-recommends binutils \
    && find /opt/tracer -name '*.so' -not -path '*.libs/*' -exec strip --strip-unneeded {} +

FROM ${PYTHON}
ARG VERSION=0.1.0
LABEL org.opencontainers.image.title="Tracer" \
    org.opencontainers.image.description="Records what an LLM agent did, and which tool call opened which sub-plan" \
    org.opencontainers.image.licenses="Apache-2.0" \
    org.opencontainers.image.version="${VERSION}"
# The base image's pip is not needed: nothing is installed in a container.
RUN useradd --no-create-home --home-dir /var/lib/tracer --shell /usr/sbin/nologin --uid 8420 tracer \
    && install --directory --owner tracer --group tracer --mode 0700 /var/lib/tracer \
    && rm -rf /usr/local/bin/pip* /usr/local/lib/python3*/site-packages/pip* /usr/local/lib/python3*/ensurepip
COPY --from=programs /opt/tracer /opt/tracer
ENV PATH=/opt/tracer/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    TRACER_HOME=/var/lib/tracer
# By number, so that a cluster can see that it is not root.
USER 8420
WORKDIR /var/lib/tracer
VOLUME /var/lib/tracer
EXPOSE 8420 4317
HEALTHCHECK --interval=10s --timeout=3s --start-period=60s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8420/healthz', timeout=2)"]
# All addresses, which a server without keys would refuse: the first start makes one, and prints it.
CMD ["tracer", "serve", "--host", "0.0.0.0", "--port", "8420", "--first-key"]
