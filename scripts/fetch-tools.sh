#!/usr/bin/env bash
# Downloads and builds what the tests need, before they run where there is no network. The programs of Kubernetes and
# containerd are not among it: those are built for the cluster that needs them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
node scripts/fetch-consumer-tools.ts
node scripts/fetch-release-tools.ts
node scripts/fetch-cluster-tools.ts
