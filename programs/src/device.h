/* Properties of a device that applications need, from any layout. */
#ifndef NETDRA_DEVICE_H
#define NETDRA_DEVICE_H

#include "catalog.h"

enum field {
  field_pci,         /* PCI address, as in the file */
  field_interface,   /* name of the network interface */
  field_mac,         /* MAC address */
  field_ips,         /* interface addresses with prefix length, separated by blanks */
  field_mtu,         /* bytes */
  field_vlan,        /* VLAN id set by the PF */
  field_numa_node,   /* of the NIC */
  field_driver,      /* kernel driver that the device is bound to */
  field_vfio_device, /* /dev/vfio/<group> */
  field_count,
};

/* NULL if it is unknown. */
const char *device_field(struct arena *arena, const struct device *device, enum field field);

/* Whether the text has the form that DPDK and libvirt accept: domain:bus:device.function, hexadecimal. */
bool is_pci_address(const char *text);

/*
 * Whether DPDK can drive the device: it is bound to a driver for user space, or to one that serves the kernel and DPDK at
 * once (mlx4, mlx5, mana), or the file does not record the driver.
 */
bool is_for_dpdk(struct arena *arena, const struct device *device);

#endif
