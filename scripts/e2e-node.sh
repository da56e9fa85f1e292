#!/usr/bin/env bash
# The cases of e2e/node, on a separate node. `--cni-bin DIR` names a folder with CNI plugins of other projects; it must be
# the first argument. Other arguments are passed to vitest.
set -euo pipefail
if [ "${1-}" = --cni-bin ]; then
  NETDRA_CNI_BIN_DIR=$(cd "${2:?--cni-bin needs a folder}" && pwd -P)
  export NETDRA_CNI_BIN_DIR
  shift 2
fi
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/fetch-tools.sh
exec bash scripts/in-node.sh vitest run --project e2e-node "$@"
