#!/usr/bin/env bash
# Types, lint, format, subjects of commits, and whether the pages are true to the code. With --code only the first three: `npm test`
# runs the tests of the pages with the units, and the subject of an old commit is no fault of the code.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tsc -p .
biome check .
if [ "${1-}" = --code ]; then exit 0; fi
node scripts/commit-subjects.ts
vitest run --project quick --silent=true test/unit/docs test/unit/deploy/{operators-page,monitoring}.test.ts test/unit/app/tools/troubleshooting.test.ts
