#!/usr/bin/env bash
# Types of the site's code, then the built site in a browser.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
tsc -p docs/site
vitest run --config docs/site/vitest.config.ts
