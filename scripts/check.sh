#!/usr/bin/env bash
# Checks types, lint, format, commit subjects, and the pages against the code. With --code only the first three: `npm test` runs the
# tests of the pages with the unit tests, and an old commit's subject is not a fault of the code.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tsc -p .
biome check .
if [ "${1-}" = --code ]; then exit 0; fi
node scripts/commit-subjects.ts
vitest run --project quick --silent=true test/unit/docs test/unit/deploy/{reference-pages,monitoring}.test.ts test/unit/cli/troubleshooting.test.ts
