#!/usr/bin/env bash
# The cases of e2e/node, on a node of its own. Arguments go to vitest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/fetch-tools.sh
exec bash scripts/in-node.sh vitest run --project e2e-node "$@"
