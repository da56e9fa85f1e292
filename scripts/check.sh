#!/usr/bin/env bash
# Types, lint and format.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tsc -p .
biome check .
