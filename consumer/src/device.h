/* What an application wants to know of a device, from whatever layout it comes. */
#ifndef NETDRA_DEVICE_H
#define NETDRA_DEVICE_H

#include "catalog.h"

enum field {
  field_pci,         /* PCI address, as the file has it */
  field_interface,   /* name of the network interface */
  field_mac,         /* MAC address */
  field_ips,         /* interface addresses with prefix length, with blanks between them */
  field_mtu,         /* bytes */
  field_vlan,        /* VLAN id that the PF has set */
  field_numa_node,   /* of the NIC */
  field_driver,      /* kernel driver that the device is bound to */
  field_vfio_device, /* /dev/vfio/<group> */
  field_count,
};

/* NULL if it is not known. */
const char *device_field(struct arena *arena, const struct device *device, enum field field);

/* Whether it has the form that DPDK and libvirt take: domain:bus:device.function, hexadecimal. */
bool is_pci_address(const char *text);

/*
 * Whether DPDK can drive it: it is bound to a driver for user space, or to one that serves the kernel and DPDK at once
 * (mlx4, mlx5, mana), or the file does not tell.
 */
bool is_for_dpdk(struct arena *arena, const struct device *device);

#endif
