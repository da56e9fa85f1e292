#!/usr/bin/env bash
# Our NRI stub and metadata files against the Go code of containerd and Kubernetes. Needs Go, or a cache with the
# programs. Arguments are passed to vitest.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
node e2e/neighbours/build.ts
exec vitest run --project neighbours "$@"
