#!/usr/bin/env bash
# Runs a command on a separate node: fresh mount, network and pid namespaces with the requirements of the tests in e2e/node.
#
#   bash scripts/in-node.sh COMMAND [ARGUMENT...]
#
# Inside, /run, /var/lib, /var/log and the temporary folder are the node's own (in memory), /sys shows the node's own network
# devices, loopback is up, and there are no other links. When COMMAND or this script ends, in whatever way, the kernel
# kills every process of the node and removes its mounts, network namespaces and links. Cgroups outlive
# namespaces: those of the node are below $NETDRA_CGROUP_PARENT and are removed here; those of a node whose script was
# killed are removed when the next one starts.
#
# Exits with COMMAND's code. Passes SIGINT, SIGTERM and SIGHUP on to COMMAND, once.
# Needs the project's Node.js in PATH (scripts/bootstrap.sh). An ordinary user becomes root in a user namespace, where the
# kernel refuses what only the machine's root may do: to make device nodes, to change the clock, or to enter its cgroups.
#
# NETDRA_CACHE     folder for downloads, default ${XDG_CACHE_HOME:-~/.cache}/netdra
set -euo pipefail

repo=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

fail() {
  printf 'netdra: %s\n' "$@" >&2
  exit 1
}

# --- outside the namespaces -----------------------------------------------------------------------------------------

check_needs() {
  if [ "$(id -u)" -ne 0 ]; then
    unshare --user --map-root-user --mount --net true 2>/dev/null ||
      fail 'this machine allows no user namespaces, so a node of its own needs root.' \
        'Run it as root, for example from a shell that `sudo -s` gives, or permit user namespaces (user_namespaces(7)).'
  fi
  for tool in unshare setsid flock mount umount find node; do
    command -v "$tool" >/dev/null || fail "$tool is not in PATH." \
      'The tools are in util-linux, mount and findutils; node comes with scripts/bootstrap.sh.'
  done
}

# Provides the runtime, its plugins and `ip`, and adopts the PATH that contains them. One run at a time.
load_tools() {
  local cache exports
  cache=${NETDRA_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/netdra}
  mkdir -p "$cache"
  exports=$(flock "$cache/tools.lock" node "$repo/e2e/node/fetch-tools.ts" "$cache") || exit 1
  eval "$exports"
  # The tests start the driver hundreds of times.
  export NODE_COMPILE_CACHE=$cache/node
}

# Folders of a cgroup in every hierarchy, v1 and v2.
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

# The name of a node's cgroup ends in the pid of its script; without that process the node was killed.
# Pids are relative to the current node, if any, so only the cgroups directly below its own are checked.
remove_stale_cgroups() {
  local prefix=$1/netdra-node- folder pid
  for folder in /sys/fs/cgroup"$prefix"* /sys/fs/cgroup/*"$prefix"*; do
    pid=${folder##*-}
    if [ -d "$folder" ] && [ ! -d "/proc/$pid" ]; then remove_cgroups "$prefix$pid"; fi
  done
}

run_outside() {
  local namespaces=(--mount --net --pid)
  [ $# -gt 0 ] || fail 'usage: bash scripts/in-node.sh COMMAND [ARGUMENT...]'
  check_needs
  if [ "$(id -u)" -ne 0 ]; then namespaces+=(--user --map-root-user); fi
  load_tools
  remove_stale_cgroups "${NETDRA_CGROUP_PARENT-}"
  NETDRA_CGROUP_PARENT=${NETDRA_CGROUP_PARENT-}/netdra-node-$$
  export NETDRA_CGROUP_PARENT

  # Signals are passed to COMMAND through this pipe: its pid inside is not known here. Its end means that this script is gone.
  local pipe_folder name child signalled code=0 status
  pipe_folder=$(mktemp -d)
  mkfifo "$pipe_folder/signals"
  # Opened for reading and writing, since the other end does not exist yet; that one is opened through this one.
  exec 4<>"$pipe_folder/signals"
  rm -r "$pipe_folder"
  for name in INT TERM HUP; do
    # shellcheck disable=SC2064 # the name of this turn is meant
    trap "signalled=yes; echo $name >&4" "$name"
  done
  # A separate session, so that a terminal's Ctrl-C arrives only here and is not received twice.
  setsid unshare "${namespaces[@]}" --fork --kill-child --mount-proc --propagation private \
    bash "$repo/scripts/in-node.sh" --inside "$@" <&0 3</proc/self/fd/4 4>&- &
  child=$!
  signalled=yes
  # `wait` returns early on a signal: wait again. 127 means that the first wait had already seen the end.
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
  # Hides all of the machine's /run, above all the container runtimes' sockets.
  mount -t tmpfs -o mode=755,nosuid,nodev netdra-run /run
  mkdir -p /run/lock /run/netdra/cgroup /run/netdra/tmp /run/netdra/upper /run/netdra/work
  chmod 1777 /run/lock /run/netdra/tmp
  if [ "$(readlink -f /var/run)" != /run ]; then mount --bind /run /var/run; fi

  # A sysfs shows the network devices of the namespace that mounted it, so the node needs its own. The cgroups
  # below it remain the machine's.
  mount --rbind /sys/fs/cgroup /run/netdra/cgroup
  mount -t sysfs -o nosuid,nodev,noexec sysfs /sys
  mount --rbind /run/netdra/cgroup /sys/fs/cgroup
  umount -l /run/netdra/cgroup

  # libcni keeps its cache in /var/lib/cni, which cannot be configured; kubelets use /var/lib/kubelet.
  mount -t overlay -o lowerdir=/var/lib,upperdir=/run/netdra/upper,workdir=/run/netdra/work netdra-lib /var/lib \
    2>/dev/null || mount -t tmpfs -o mode=755 netdra-lib /var/lib
  # A kubelet removes the logs below /var/log/pods of pods that it does not know: those of another node's kubelet.
  mount -t tmpfs -o mode=755,nosuid,nodev netdra-log /var/log
  [ -e "$repo/package.json" ] ||
    fail "$repo is not visible on a node of its own: move it out of /run, /var/lib and /var/log."
}

# Runs COMMAND as a child of the node's first process, which reaps the orphans of the container runtime.
run_inside() {
  local command code=0
  set_up_mounts
  ip link set lo up
  export TMPDIR=/run/netdra/tmp
  # Background jobs of a script ignore SIGINT unless told otherwise.
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
  # The script outside is gone: COMMAND is no longer needed.
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
