#!/usr/bin/env bash
# Everything: types, lint and format; then all tests on nodes of their own, and those on real SR-IOV in a virtual machine.
# Arguments go to vitest, and choose among the tests on a node: the machine is left out then. So is its case of the image,
# which takes minutes by itself: `npm run e2e:vm -- image`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# The unit tests by themselves, since they use all processors. Then two nodes side by side: the tests on a container runtime
# wait for most of their time.
run_on_nodes() {
  local failed=0
  bash scripts/in-node.sh vitest run --project quick || failed=$?
  log=$(mktemp)
  bash scripts/in-node.sh vitest run --project e2e-node >"$log" 2>&1 &
  runtime_tests=$!
  # Jobs in the background do not get the terminal's SIGINT.
  trap 'kill "$runtime_tests" 2>/dev/null || true; wait "$runtime_tests" || true; rm -f "$log"' EXIT
  trap 'exit 130' INT TERM HUP
  bash scripts/in-node.sh vitest run --project integration || failed=$?
  wait "$runtime_tests" || failed=$?
  cat "$log"
  return "$failed"
}

bash scripts/check.sh
node scripts/fetch-consumer-tools.ts
node scripts/fetch-release-tools.ts
node scripts/fetch-cluster-tools.ts
if [ $# -gt 0 ]; then
  bash scripts/in-node.sh vitest run "$@"
else
  run_on_nodes
  bash scripts/e2e-vm.sh --exclude '**/image.test.ts'
fi
