#!/usr/bin/env bash
# Everything: types, lint and format; then all tests, on a node of its own. Arguments go to vitest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/check.sh
node scripts/fetch-consumer-tools.ts
node scripts/fetch-chart-tools.ts
exec bash scripts/in-node.sh vitest run "$@"
