#!/usr/bin/env bash
# Everything: types, lint and format; then all tests on a node of its own, and those on real SR-IOV in a virtual machine.
# Arguments go to vitest, and choose among the tests on the node: the machine is left out then. So is its case of the image,
# which takes minutes by itself: `npm run e2e:vm -- image`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/check.sh
node scripts/fetch-consumer-tools.ts
node scripts/fetch-chart-tools.ts
bash scripts/in-node.sh vitest run "$@"
if [ $# -eq 0 ]; then bash scripts/e2e-vm.sh --exclude '**/image.test.ts'; fi
