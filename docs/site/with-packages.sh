#!/usr/bin/env bash
# Runs a command after installing what the site is made with, as in docs/site/package-lock.json: nothing of it is part of the product.
#
#   bash scripts/bootstrap.sh bash docs/site/with-packages.sh COMMAND [ARGUMENT...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
stamp=docs/site/node_modules/.netdra-lock-hash
lock_hash=$(sha256sum docs/site/package-lock.json | cut -d ' ' -f 1)
mkdir -p docs/site/node_modules
exec 9>docs/site/node_modules/.netdra-lock
flock 9
if [ "$(cat "$stamp" 2>/dev/null || true)" != "$lock_hash" ] || [ ! -x docs/site/node_modules/.bin/vitepress ]; then
  echo 'netdra: installing the packages of the site as in docs/site/package-lock.json ...' >&2
  # See scripts/bootstrap.sh for why it is not `npm ci`. None of the packages needs its install script.
  npm install --prefix docs/site --include=dev --no-save --no-audit --no-fund --ignore-scripts --loglevel=error 1>&2
  printf '%s\n' "$lock_hash" >"$stamp"
fi
exec 9>&-
exec "$@"
