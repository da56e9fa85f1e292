#!/usr/bin/env bash
# Downloads and builds the requirements of the tests, before they run without a network. The programs of Kubernetes and
# containerd are not included: they are built for the cluster that needs them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
node scripts/fetch-program-tools.ts
node scripts/fetch-release-tools.ts
node scripts/fetch-cluster-tools.ts
node scripts/fetch-project-tools.ts
bash docs/site/with-packages.sh node docs/site/test/chromium.ts
