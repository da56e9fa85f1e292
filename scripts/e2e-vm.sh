#!/usr/bin/env bash
# The cases of e2e/vm, in a virtual machine with real SR-IOV. `--cni-bin DIR` must come first; it names a folder of this repository,
# since the machine sees nothing else, with CNI plugins of other projects. Other arguments are passed to vitest.
set -euo pipefail
if [ "${1-}" = --cni-bin ]; then
  NETDRA_CNI_BIN_DIR=$(cd "${2:?--cni-bin needs a folder}" && pwd -P)
  export NETDRA_CNI_BIN_DIR
  shift 2
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec bash scripts/in-vm.sh vitest run --configLoader native --config e2e/vm/vitest.config.ts "$@"
