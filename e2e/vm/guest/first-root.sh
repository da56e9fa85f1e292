#!/bin/busybox sh
# The first process of the guest, in the kernel's first root: mounts the disk with an overlay in memory and the share of
# this run, and goes on with the script that the run brings along.
fail() {
  echo "netdra: $1" >/dev/kmsg
  poweroff -f
}
/bin/busybox --install -s /bin
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
while read -r module; do insmod "/modules/$module" || fail "cannot load $module"; done </modules/order
mkdir -p /disk /memory /root
mount -t ext4 -o ro /dev/vda /disk || fail 'cannot mount the disk'
mount -t tmpfs -o mode=755 memory /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/disk,upperdir=/memory/upper,workdir=/memory/work root /root || fail 'cannot mount the root'
mount -t tmpfs -o mode=755,nosuid,nodev run /root/run
mkdir -p /root/run/netdra/vm
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000 run /root/run/netdra/vm || fail 'cannot mount the share'
for folder in proc sys dev; do mount --move "/$folder" "/root/$folder"; done
exec switch_root /root /bin/bash /run/netdra/vm/second-root.sh
