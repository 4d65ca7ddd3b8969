#!/usr/bin/env bash
# Finds the PgBouncer that a test puts before Postgres, or installs one, and prints where it is.
set -euo pipefail
export PATH="$PATH:/usr/sbin:/usr/local/sbin"

if ! command -v pgbouncer; then
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends pgbouncer >&2
    fi
    command -v pgbouncer || {
        echo "No PgBouncer could be installed: put pgbouncer on PATH and try again." >&2
        exit 1
    }
fi
