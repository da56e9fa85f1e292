#!/usr/bin/env bash
# Runs a command with the project's own tools: npm packages as in package-lock.json, Node 24 first in PATH.
#
#   bash scripts/bootstrap.sh [--root] COMMAND [ARGUMENT...]
#
# --root    COMMAND needs root: checked before anything is installed
#
# Needs npm, any Node.js from 18 on, and standard Linux tools. The first run installs the packages; later runs see
# from a stamp inside node_modules that nothing changed. COMMAND runs in the root folder of the repository and replaces
# this script, so its exit code is the exit code.
set -euo pipefail

fail() {
  printf 'netdra: %s\n' "$@" >&2
  exit 1
}

# Not by the stamp alone: npm may have been interrupted, or told to leave out what the project is developed with.
is_installed() {
  [ "$(cat "$2" 2>/dev/null)" = "$1" ] && [ -x node_modules/.bin/vitest ]
}

install_packages() {
  local lock_hash=$1 stamp=$2 major
  for tool in node npm flock; do
    command -v "$tool" >/dev/null || fail "$tool is not in PATH." "Install Node.js 18 or later with npm, and util-linux."
  done
  major=$(node -p 'process.versions.node.split(".")[0]')
  [ "$major" -ge 18 ] || fail "Node.js $(node --version) is too old to install the packages: 18 or later is needed."

  # Of two concurrent runs the second one waits, and then finds the stamp.
  mkdir -p node_modules
  exec 9>node_modules/.netdra-lock
  flock 9
  if ! is_installed "$lock_hash" "$stamp"; then
    echo 'netdra: installing npm packages as in package-lock.json ...' >&2
    # Not `npm ci`: that refuses a lock file without the optional packages of all other platforms, and a registry may
    # not have those. With --no-save this command follows the lock file just as strictly, and does not write it.
    # To stderr: stdout is reserved for COMMAND.
    npm install --include=dev --no-save --no-audit --no-fund --loglevel=error 1>&2 ||
      fail 'npm install failed, see above.' 'It needs the npm registry, or a filled npm cache.'
    [ -x node_modules/.bin/vitest ] || fail 'npm install left no node_modules/.bin/vitest.' 'Remove node_modules and run this again.'
    printf '%s\n' "$lock_hash" >"$stamp"
  fi
  exec 9>&-
}

needs_root=no
if [ "${1-}" = --root ]; then
  needs_root=yes
  shift
fi
[ $# -gt 0 ] || fail 'usage: bash scripts/bootstrap.sh [--root] COMMAND [ARGUMENT...]'
if [ "$needs_root" = yes ] && [ "$(id -u)" -ne 0 ]; then
  fail 'this needs root: it makes network namespaces and starts a container runtime of its own.' \
    'Run it as root, for example from a shell that `sudo -s` gives.'
fi

cd "$(dirname "${BASH_SOURCE[0]}")/.."
stamp=node_modules/.netdra-lock-hash
lock_hash=$(sha256sum package-lock.json | cut -d ' ' -f 1)
if ! is_installed "$lock_hash" "$stamp"; then
  install_packages "$lock_hash" "$stamp"
fi

export PATH="$PWD/node_modules/.bin:$PATH"
case "$(node --version)" in
  v2[4-9].* | v[3-9][0-9].*) ;;
  *) fail "node_modules/.bin/node is $(node --version), not 24 or later." \
    'Remove node_modules and run this again; npm must be allowed to run the install script of the package "node".' ;;
esac
# Much of what runs next starts Node.js many times, which would compile the same files each time.
export NETDRA_CACHE=${NETDRA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/netdra}
export NODE_COMPILE_CACHE=${NODE_COMPILE_CACHE-$NETDRA_CACHE/node}
exec "$@"
