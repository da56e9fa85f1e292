#include "device.h"

#include <string.h>

/* The union of resource.k8s.io has one member; the older layouts have the bare value. */
static const char *attribute_text(const struct json *attribute) {
  static const char *const members[] = {"string", "version", "int", "bool"};
  if (attribute == NULL || attribute->type != json_object) return json_scalar_of(attribute);
  for (size_t index = 0; index < sizeof members / sizeof *members; index++) {
    const char *text = json_scalar_of(json_member(attribute, members[index]));
    if (text != NULL) return text;
  }
  return NULL;
}

/* An attribute name without domain belongs to the driver: it can also be written with the driver's name before it. */
static const char *member_text(struct arena *arena, const struct device *device, const struct json *attributes,
                               const char *name) {
  const char *text = attribute_text(json_member(attributes, name));
  if (text != NULL || device->driver == NULL || attributes == NULL || strchr(name, '/') != NULL) return text;
  return attribute_text(json_member(attributes, arena_format(arena, "%s/%s", device->driver, name)));
}

static const char *find_text(struct arena *arena, const struct device *device, const char *name) {
  const struct json *data = device->data;
  const struct json *places[] = {
      json_member(data, "attributes"),
      json_member(json_member(data, "driverProvidedData"), "data"),
      json_member(json_member(data, "bestEffortData"), "attributes"),
  };
  for (size_t index = 0; index < sizeof places / sizeof *places; index++) {
    const char *text = member_text(arena, device, places[index], name);
    if (text != NULL) return text;
  }
  return NULL;
}

static const struct json *network_data(const struct device *device) {
  const struct json *data = json_member(device->data, "networkData");
  return data != NULL ? data : json_member(json_member(device->data, "driverProvidedData"), "networkData");
}

/* Names as in resource.k8s.io/v1, else as in the KEP's examples. */
static const char *address_list(struct arena *arena, const struct device *device) {
  const struct json *list = json_member(network_data(device), "ips");
  const char *text = NULL;
  if (list == NULL) list = json_member(network_data(device), "addresses");
  for (const struct json *each = list == NULL ? NULL : list->first; each != NULL; each = each->next) {
    text = text == NULL ? each->text : arena_format(arena, "%s %s", text, each->text);
  }
  return text;
}

const char *device_field(struct arena *arena, const struct device *device, enum field field) {
  static const struct {
    const char *network[2], *attributes[4];
  } sources[field_count] = {
      [field_pci] = {{NULL},
                     {"resource.kubernetes.io/pciBusID", "resource.k8s.io/pciBusID", "pciBusID", "pciAddress"}},
      [field_interface] = {{"interfaceName"}, {NULL}},
      [field_mac] = {{"hardwareAddress", "hwAddress"}, {"mac"}},
      [field_mtu] = {{NULL}, {"mtu"}},
      [field_vlan] = {{NULL}, {"vlan"}},
      [field_numa_node] = {{NULL}, {"resource.kubernetes.io/numaNode", "numaNode"}},
      [field_driver] = {{NULL}, {"driver"}},
      [field_vfio_device] = {{NULL}, {"vfioDevice"}},
  };
  if (field == field_ips) return address_list(arena, device);
  for (size_t index = 0; index < 2 && sources[field].network[index] != NULL; index++) {
    const char *text = json_string_of(json_member(network_data(device), sources[field].network[index]));
    if (text != NULL) return text;
  }
  for (size_t index = 0; index < 4 && sources[field].attributes[index] != NULL; index++) {
    const char *text = find_text(arena, device, sources[field].attributes[index]);
    if (text != NULL) return text;
  }
  return NULL;
}

static const char *skip_hex(const char *text, size_t least, size_t most) {
  size_t count = strspn(text, "0123456789abcdefABCDEF");
  return count >= least && count <= most ? text + count : "";
}

bool is_pci_address(const char *text) {
  // Domains of more than four digits exist behind Intel VMD and on Azure.
  const char *rest = skip_hex(text, 4, 8);
  for (int part = 0; part < 2; part++) {
    if (*rest != ':') return false;
    rest = skip_hex(rest + 1, 2, 2);
  }
  return rest[0] == '.' && rest[1] >= '0' && rest[1] <= '7' && rest[2] == '\0';
}

bool is_for_dpdk(struct arena *arena, const struct device *device) {
  static const char *const drivers[] = {"vfio-pci",  "igb_uio",   "uio_pci_generic", "mlx5_core",
                                        "mlx4_core", "mlx4_en",   "mana"};
  const char *driver = device_field(arena, device, field_driver);
  if (driver == NULL) return true;
  for (size_t index = 0; index < sizeof drivers / sizeof *drivers; index++) {
    if (strcmp(drivers[index], driver) == 0) return true;
  }
  // Vendor variants of vfio-pci exist, such as mlx5_vfio_pci.
  return strstr(driver, "vfio") != NULL;
}
