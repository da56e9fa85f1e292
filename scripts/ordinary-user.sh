#!/usr/bin/env bash
# Runs a command as an ordinary user, in a copy of this checkout that belongs to that user: some tests run only without root, and
# the kernel refuses an ordinary user more.
#
#   bash scripts/ordinary-user.sh COMMAND [ARGUMENT...]
#
# COMMAND runs in the copy, as user and group 65534 without further groups and capabilities, with a home folder and a cache of
# its own. For scripts/in-node.sh, the cache starts with the Debian packages of NETDRA_CACHE. The copy is removed at the end.
# Exits with COMMAND's code.
# Needs root, and the project's Node.js in PATH (scripts/bootstrap.sh).
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)
cache=${NETDRA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/netdra}
user=65534
if [ "$(id -u)" -ne 0 ]; then
  echo 'netdra: scripts/ordinary-user.sh changes its user, so it needs root.' >&2
  exit 1
fi

folder=$(mktemp -d /tmp/netdra-user.XXXXXX)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
mkdir -p "$folder/checkout" "$folder/home/.cache/netdra"
# Files that git ignores, except for the packages, are results of other runs.
git -C "$repo" ls-files -z --cached --others --exclude-standard |
  (cd "$repo" && xargs -0 --no-run-if-empty sh -c 'for file; do [ ! -e "$file" ] || printf "%s\0" "$file"; done' -) |
  tar --create --directory "$repo" --null --files-from - | tar --extract --directory "$folder/checkout"
cp -a "$repo/node_modules" "$folder/checkout/"
case " $* " in
  *' scripts/in-node.sh '*) if [ -d "$cache/debian" ]; then cp -a "$cache/debian" "$folder/home/.cache/netdra/"; fi ;;
esac
chown -R "$user:$user" "$folder"

# Of the environment only what reaches the network and a mirror, and whether this is CI.
passed=()
for name in CI NETDRA_DEBIAN_MIRROR HTTP_PROXY HTTPS_PROXY NO_PROXY http_proxy https_proxy no_proxy; do
  if [ -n "${!name-}" ]; then passed+=("$name=${!name}"); fi
done

cd "$folder/checkout"
setpriv --reuid "$user" --regid "$user" --clear-groups --inh-caps=-all \
  env --ignore-environment "${passed[@]}" HOME="$folder/home" NETDRA_CACHE="$folder/home/.cache/netdra" LANG="${LANG-}" \
  PATH="$folder/checkout/node_modules/.bin:${PATH#"$repo/node_modules/.bin:"}" "$@"
