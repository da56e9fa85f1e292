#!/bin/bash
# The first process of the guest once its disk is mounted: makes it a node with SR-IOV, runs the command of this run,
# reports its exit code, and ends the machine.
set -u
# vfio pins the memory that an application maps.
ulimit -l unlimited
share=/run/netdra/vm
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin HOME=/root LANG=C.UTF-8

# As a device manager does: the ports by the names that the host gave them.
link_ports() {
  local each
  mkdir /dev/virtio-ports
  for each in /sys/class/virtio-ports/*; do
    ln -s "/dev/${each##*/}" "/dev/virtio-ports/$(<"$each/name")"
  done
}

set_up_mounts() {
  mkdir -p /dev/pts /dev/shm /dev/hugepages
  mount -t devpts -o gid=5,mode=620,ptmxmode=666 devpts /dev/pts
  mount -t tmpfs -o mode=1777,nosuid,nodev shm /dev/shm
  mount -t tmpfs -o mode=1777,nosuid,nodev tmp /tmp
  mount -t hugetlbfs hugetlbfs /dev/hugepages
  mount -t cgroup2 cgroup2 /sys/fs/cgroup
  mkdir -p "$repository"
  mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,ro,cache=loose repository "$repository"
  mkdir /run/netdra/qemu
  mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,ro,cache=loose qemu /run/netdra/qemu
  # Far faster than thousands of small files through the share.
  mount -o ro /dev/vdb "$repository/node_modules"
}

# Files that packages' scripts and installers would write; containerd and glibc read them.
write_settings() {
  echo netdra-vm >/proc/sys/kernel/hostname
  printf '127.0.0.1 localhost netdra-vm\n::1 localhost\n' >/etc/hosts
  printf 'root:x:0:0:root:/root:/bin/bash\n' >/etc/passwd
  printf 'root:x:0:\n' >/etc/group
  : >/etc/resolv.conf
  # As in Debian: network namespaces are visible below both paths.
  rm -rf /var/run
  ln -s /run /var/run
}

# Without a device manager the kernel names links in probe order. These names identify the devices.
name_links() {
  local link driver pf vf index number=0
  for link in /sys/class/net/*; do
    driver=$(readlink "$link/device/driver") || continue
    if [ "${driver##*/}" = virtio_net ]; then ip link set "${link##*/}" name mgmt0; fi
  done
  for pf in /sys/bus/pci/drivers/igb/0000:*; do
    ip link set "$(ls "$pf/net")" name "pf$number" up
    echo 7 >"$pf/sriov_numvfs"
    for index in 0 1 2 3 4 5 6; do
      vf=$pf/virtfn$index/net
      ip link set "$(ls "$vf")" name "pf${number}v$index"
    done
    number=$((number + 1))
  done
}

set_up_network() {
  ip link set lo up
  modprobe -a virtio_net igb igbvf vfio-pci bridge veth
  name_links
  ip address add "$address" dev mgmt0
  ip link set mgmt0 up
  ip route add default via "$gateway"
}

# What Node.js has compiled in earlier runs: for that, emulated processors take a minute. One file, since the share is slow.
unpack_compiled() {
  if [ -f "$share/compiled.tar" ]; then busybox tar -xf "$share/compiled.tar" -C /tmp; fi
}

pack_compiled() {
  if [ -d /tmp/compiled ]; then busybox tar -cf "$share/compiled.tar" -C /tmp compiled; fi
}

finish() {
  pack_compiled
  printf 'exit %d\n' "$1" >/dev/virtio-ports/control
  sync
  busybox poweroff -f
}

. "$share/settings.sh"
set_up_mounts
write_settings
set_up_network
unpack_compiled
link_ports
printf 'ready\n' >/dev/virtio-ports/control
code=0
cd "$repository" || finish 1
if [ "$terminal" = yes ]; then
  stty rows "$rows" columns "$columns" </dev/hvc0
  setsid --ctty --wait bash "$share/command.sh" <>/dev/hvc0 >&0 2>&1 || code=$?
else
  stdin=/dev/null
  if [ "$input" = yes ]; then stdin=/dev/virtio-ports/stdin; fi
  bash "$share/command.sh" <"$stdin" >/dev/virtio-ports/stdout 2>/dev/virtio-ports/stderr || code=$?
fi
finish "$code"
