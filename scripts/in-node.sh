#!/usr/bin/env bash
# Runs a command on a node of its own: fresh mount, network and pid namespaces with what the tests of e2e/node need.
#
#   bash scripts/in-node.sh COMMAND [ARGUMENT...]
#
# Inside, /run, /var/lib and the temporary folder are the node's own (in memory), /sys shows the node's own network
# devices, loopback is up, and nothing else is. When COMMAND ends, or this script does, however it does, the kernel
# ends every process of the node and takes back its mounts, network namespaces and links. What outlives namespaces are
# cgroups: those of the node are below $NETDRA_CGROUP_PARENT and are removed here; those of a node whose script was
# killed are removed when the next one starts.
#
# Exits with COMMAND's code. Hands SIGINT, SIGTERM and SIGHUP on to COMMAND, once.
# Needs root and the project's Node.js in PATH (scripts/bootstrap.sh).
#
# NETDRA_CACHE     folder for what is downloaded, default .cache in the repository
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

fail() {
  printf 'netdra: %s\n' "$@" >&2
  exit 1
}

# --- outside the namespaces -----------------------------------------------------------------------------------------

check_needs() {
  [ "$(id -u)" -eq 0 ] || fail 'a node of its own needs root: namespaces, mounts, a container runtime.' \
    'Run it as root, for example from a shell that `sudo -s` gives.'
  for tool in unshare setsid flock mount umount find node; do
    command -v "$tool" >/dev/null || fail "$tool is not in PATH." \
      'The tools are in util-linux, mount and findutils; node comes with scripts/bootstrap.sh.'
  done
}

# Makes sure of the runtime, its plugins and `ip`, and takes over the PATH that has them. One at a time.
load_tools() {
  local cache=${NETDRA_CACHE:-$repo/.cache} exports
  mkdir -p "$cache"
  exports=$(flock "$cache/tools.lock" node "$repo/e2e/node/fetch-tools.ts" "$cache") || exit 1
  eval "$exports"
  # The tests start the driver hundreds of times.
  export NODE_COMPILE_CACHE=$cache/node
}

# The folders of a cgroup in every hierarchy, v1 and v2.
cgroup_folders() {
  local folder
  for folder in /sys/fs/cgroup"$1" /sys/fs/cgroup/*"$1"; do
    if [ -d "$folder" ]; then printf '%s\n' "$folder"; fi
  done
}

remove_cgroups() {
  local folder tries
  while read -r folder; do
    # A cgroup stays busy for a moment after its last process is gone.
    for tries in 1 2 3 4 5; do
      find "$folder" -depth -type d -exec rmdir {} + 2>/dev/null || true
      if [ ! -d "$folder" ]; then break; fi
      sleep 0.1
    done
  done < <(cgroup_folders "$1")
}

# The name of a node's cgroup ends in the pid of its script; without that script it is of a node that was killed.
# Pids are those of the node that we are on, if we are on one, so only the cgroups right below its own are looked at.
remove_stale_cgroups() {
  local prefix=$1/netdra-node- folder pid
  for folder in /sys/fs/cgroup"$prefix"* /sys/fs/cgroup/*"$prefix"*; do
    pid=${folder##*-}
    if [ -d "$folder" ] && [ ! -d "/proc/$pid" ]; then remove_cgroups "$prefix$pid"; fi
  done
}

run_outside() {
  [ $# -gt 0 ] || fail 'usage: bash scripts/in-node.sh COMMAND [ARGUMENT...]'
  check_needs
  load_tools
  remove_stale_cgroups "${NETDRA_CGROUP_PARENT-}"
  NETDRA_CGROUP_PARENT=${NETDRA_CGROUP_PARENT-}/netdra-node-$$
  export NETDRA_CGROUP_PARENT

  # Signals go to COMMAND by this pipe: its pid inside is not known here. Its end tells that this script is gone.
  local pipe_folder name child signalled code=0 status
  pipe_folder=$(mktemp -d)
  mkfifo "$pipe_folder/signals"
  # Opened both ways, as the other end is not there yet; that one is opened by way of this one.
  exec 4<>"$pipe_folder/signals"
  rm -r "$pipe_folder"
  for name in INT TERM HUP; do
    # shellcheck disable=SC2064 # the name of this turn is meant
    trap "signalled=yes; echo $name >&4" "$name"
  done
  # A session of its own, so that a terminal's Ctrl-C comes here only and is not seen twice.
  setsid unshare --mount --net --pid --fork --kill-child --mount-proc --propagation private \
    bash "$repo/scripts/in-node.sh" --inside "$@" <&0 3</proc/self/fd/4 4>&- &
  child=$!
  signalled=yes
  # `wait` returns early for a signal: wait again. 127 means that the first wait had already seen the end.
  while [ "$signalled" = yes ]; do
    signalled=no
    status=0
    wait "$child" || status=$?
    if [ "$status" -ne 127 ]; then code=$status; fi
  done
  trap '' INT TERM HUP
  remove_cgroups "$NETDRA_CGROUP_PARENT"
  exit "$code"
}

# --- inside ---------------------------------------------------------------------------------------------------------

set_up_mounts() {
  # Everything of the machine's /run goes, the container runtimes' sockets above all.
  mount -t tmpfs -o mode=755,nosuid,nodev netdra-run /run
  mkdir -p /run/lock /run/netdra/cgroup /run/netdra/tmp /run/netdra/upper /run/netdra/work
  chmod 1777 /run/lock /run/netdra/tmp
  if [ "$(readlink -f /var/run)" != /run ]; then mount --bind /run /var/run; fi

  # The network devices in a sysfs are those of the namespace that mounted it, so the node needs its own. The cgroups
  # below it are the machine's and come along.
  mount --rbind /sys/fs/cgroup /run/netdra/cgroup
  mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
  mount --rbind /run/netdra/cgroup /sys/fs/cgroup
  umount -l /run/netdra/cgroup

  # libcni keeps its cache in /var/lib/cni and cannot be told otherwise; kubelets live in /var/lib/kubelet.
  mount -t overlay -o lowerdir=/var/lib,upperdir=/run/netdra/upper,workdir=/run/netdra/work netdra-lib /var/lib \
    2>/dev/null || mount -t tmpfs -o mode=755 netdra-lib /var/lib
  [ -e "$repo/package.json" ] || fail "$repo is not visible on a node of its own: move it out of /run and /var/lib."
}

# Runs COMMAND as the child of the node's first process: that one reaps what the container runtime leaves to it.
run_inside() {
  local command code=0
  set_up_mounts
  ip link set lo up
  export TMPDIR=/run/netdra/tmp
  # What runs in the background of a script ignores SIGINT, unless told otherwise.
  env --default-signal=INT,QUIT "$@" <&0 3<&- &
  command=$!
  pass_signals_to "$command" &
  exec 3<&-
  wait "$command" || code=$?
  exit "$code"
}

pass_signals_to() {
  local name
  while read -r name <&3; do kill "-$name" "$1" 2>/dev/null || true; done
  # The script outside is gone: nobody waits for COMMAND any more.
  kill -TERM "$1" 2>/dev/null || true
  sleep 5
  kill -KILL "$1" 2>/dev/null || true
}

if [ "${1-}" = --inside ]; then
  shift
  run_inside "$@"
else
  run_outside "$@"
fi
