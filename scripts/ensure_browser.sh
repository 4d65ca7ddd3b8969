#!/usr/bin/env bash
# Finds the browser that the tests drive, or installs one, and prints where it is.
set -euo pipefail
cd "$(dirname "$0")/.."

find_browser() {
    local name
    for name in chromium chromium-browser google-chrome google-chrome-stable; do
        # Running it tells more than finding it: some distributions ship a stub that only
        # says which package to install.
        if command -v "$name" >/dev/null && "$name" --version >/dev/null 2>&1; then
            command -v "$name"
            return
        fi
    done
    .venv/bin/python -c '
import pathlib, sys
from playwright.sync_api import sync_playwright
with sync_playwright() as playwright:
    path = playwright.chromium.executable_path
sys.exit(print(path) if pathlib.Path(path).is_file() else 1)'
}

if find_browser; then
    exit
fi
echo "No chromium or chrome on PATH: installing one." >&2
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    export DEBIAN_FRONTEND=noninteractive
    # Ubuntu's package is a snap, which containers can't run: Playwright's build follows then.
    if apt-get update -qq >&2 && apt-get install -y -qq --no-install-recommends chromium >&2 \
        && find_browser; then
        exit
    fi
fi
.venv/bin/playwright install chromium >&2 || true
find_browser || {
    echo "No browser could be installed: put chromium or google-chrome on PATH and try again." >&2
    exit 1
}
