#!/usr/bin/env bash
# The cases of e2e/vm, in a virtual machine with real SR-IOV. `--cni-bin DIR` names a folder of this repository, which is all
# that the machine sees, with CNI plugins of other projects; it comes first. Other arguments go to vitest.
set -euo pipefail
if [ "${1-}" = --cni-bin ]; then
  NETDRA_CNI_BIN_DIR=$(cd "${2:?--cni-bin needs a folder}" && pwd -P)
  export NETDRA_CNI_BIN_DIR
  shift 2
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
node scripts/fetch-release-tools.ts
exec bash scripts/in-vm.sh vitest run --configLoader native --config e2e/vm/vitest.config.ts "$@"
