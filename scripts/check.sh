#!/usr/bin/env bash
# Types, lint, format, subjects of commits, and whether the pages are true to the code.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tsc -p .
biome check .
node scripts/check-commits.ts
vitest run --project quick --silent=true test/unit/docs test/unit/deploy/{operators-page,monitoring}.test.ts test/unit/app/tools/troubleshooting.test.ts
