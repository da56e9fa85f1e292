#!/usr/bin/env bash
# Downloads and builds what the tests need, before they run where there is no network.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
node scripts/fetch-consumer-tools.ts
node scripts/fetch-chart-tools.ts
node scripts/fetch-cluster-tools.ts
