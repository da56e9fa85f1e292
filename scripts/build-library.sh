#!/usr/bin/env bash
# Builds the content of the package: JavaScript and types of the framework for DRA drivers and of nri/, for other projects,
# and the commands `netdra` and `kubectl-netdra`.
# Node.js strips types only from sources outside node_modules, so a package has to be JavaScript.
#
#   bash scripts/build-library.sh [FOLDER]      default dist/lib
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-dist/lib}
rm -rf "$folder"
tsc -p tsconfig.build.json --outDir "$folder"
# Expected beside the source folders.
mkdir -p "$folder/proto"
cp proto/*.proto "$folder/proto"
node scripts/build-program.ts "$folder/bin/netdra.mjs"
