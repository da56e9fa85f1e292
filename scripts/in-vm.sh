#!/usr/bin/env bash
# Runs a command in a virtual machine with real SR-IOV: an IOMMU, two NUMA nodes, on each an Intel 82576 with seven VFs,
# vfio-pci, huge pages, containerd, CNI plugins and DPDK. The processors are emulated, so no KVM is needed.
#
#   bash scripts/in-vm.sh [COMMAND [ARGUMENT...]]
#
# COMMAND runs as root in the repository, which has the same path inside but is read-only; its stdout and stderr are
# printed here, its input is empty. Without COMMAND a shell is started. The machine has no network access: its
# management interface has a default route that leads nowhere. When COMMAND or this script ends, in whatever way, the
# machine ends.
#
# Exits with COMMAND's code; 124 on a timeout, 125 when the machine failed.
# Needs the project's Node.js in PATH (scripts/bootstrap.sh), and apt with a mirror of Debian for the first run: QEMU and
# the guest consist of Debian packages, which are unpacked into the cache and not installed.
#
# NETDRA_CACHE          folder for downloads and builds, default ${XDG_CACHE_HOME:-~/.cache}/netdra
# NETDRA_DEBIAN_MIRROR  address of a Debian mirror, for machines without one in /etc/apt
# NETDRA_VM_RESULTS     folder to which COMMAND's files in $NETDRA_RESULTS are copied, default test-results/vm in the repository
# NETDRA_VM_TIMEOUT     seconds for everything except downloads, default 1800
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

fail() {
  printf 'netdra: %s\n' "$@" >&2
  exit 125
}

[ "$(uname -sm)" = 'Linux x86_64' ] || fail "the machine emulates x86-64 for this project's Node.js: it needs Linux on x86-64."
[ "$(id -u)" -eq 0 ] || fail 'making the disk of the machine needs root: its files belong to root.' \
  'Run it as root, for example from a shell that `sudo -s` gives.'
for tool in apt-get apt-cache dpkg-deb mke2fs flock setpriv cp du gcc make node; do
  command -v "$tool" >/dev/null || fail "$tool is not in PATH." \
    'The tools are in apt, dpkg, e2fsprogs, util-linux, coreutils, gcc and make; node comes with scripts/bootstrap.sh.'
done
exec node "$repo/e2e/vm/run.ts" "$@"
