#!/usr/bin/env bash
# The cases of e2e/vm, in a virtual machine with real SR-IOV. Arguments go to vitest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
node scripts/fetch-release-tools.ts
exec bash scripts/in-vm.sh vitest run --configLoader native --config e2e/vm/vitest.config.ts "$@"
