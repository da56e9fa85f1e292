#!/usr/bin/env bash
# Types, lint, format, subjects of commits, and whether the pages are true to the code. With --code without the pages, whose tests
# `npm test` runs with the units.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tsc -p .
biome check .
node scripts/check-commits.ts
if [ "${1-}" = --code ]; then exit 0; fi
vitest run --project quick --silent=true test/unit/docs test/unit/deploy/{operators-page,monitoring}.test.ts test/unit/app/tools/troubleshooting.test.ts
