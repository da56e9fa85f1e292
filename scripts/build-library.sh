#!/usr/bin/env bash
# Builds the content of the package: JavaScript and types of the framework for DRA drivers and of nri/, for other projects,
# and the commands `netdra` and `kubectl-netdra`, with `kubectl_complete-netdra`.
# Node.js strips types only from sources outside node_modules, so a package has to be JavaScript.
#
#   bash scripts/build-library.sh [FOLDER]      default dist/lib
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=${1:-dist/lib}
rm -rf "$folder"
tsc -p scripts/tsconfig.library.json --outDir "$folder"
# An older Node.js parses the code, thanks to the target, and an import of an entry point says what is needed instead.
cat >"$folder/node-version.js" <<'JS'
const { node } = process.versions;
if (Number.parseInt(node, 10) < 24) throw new Error(`netdra: Node.js 24 or newer is needed, this is ${node}`);
JS
for path in $(node -p "Object.values(require('./package.json').exports).map((each) => each.default).join(' ')"); do
  entry=$folder/${path#./dist/lib/}
  sed -i "1i import '$(realpath --relative-to "$(dirname "$entry")" "$folder/node-version.js")';" "$entry"
done
# Expected beside the source folders.
mkdir -p "$folder/proto"
cp proto/*.proto "$folder/proto"
node scripts/build-program.ts "$folder/bin/netdra.mjs"
