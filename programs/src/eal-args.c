#include <stdio.h>
#include <string.h>

#include "commands.h"

/* The arguments while they are collected: at most two for each device, and those placed before them. */
struct arguments {
  struct arena *arena;
  const struct options *options;
  char **items;
  size_t count;
  size_t virtual_count; /* devices that are given by their interface name */
  const char *first_pci; /* PCI address of the first device */
};

static size_t count_devices(const struct catalog *catalog) {
  size_t count = 0;
  for (const struct request *request = catalog->requests; request != NULL; request = request->next) {
    for (const struct device *device = request->devices; device != NULL; device = device->next) count++;
  }
  return count;
}

static void add_pci_device(struct arguments *arguments, const char *pci) {
  const struct options *options = arguments->options;
  const char *devargs = options->devargs == NULL ? "" : arena_format(arguments->arena, ",%s", options->devargs);
  arguments->items[arguments->count++] = arena_format(arguments->arena, "%s", options->flag);
  arguments->items[arguments->count++] = arena_format(arguments->arena, "%s%s", pci, devargs);
}

/* A device that stays with the kernel, used through a packet socket on its interface. */
static void add_interface(struct arguments *arguments, const char *name) {
  arguments->items[arguments->count++] =
      arena_format(arguments->arena, "--vdev=net_af_packet%zu,iface=%s", arguments->virtual_count++, name);
}

/* Of the first device, which only containers of the same claim have. */
static void keep_first(struct arguments *arguments, const struct device *device) {
  const char *pci = device_field(arguments->arena, device, field_pci);
  if (arguments->first_pci == NULL && pci != NULL && is_pci_address(pci)) arguments->first_pci = pci;
}

static char *build_file_prefix(const struct arguments *arguments) {
  if (arguments->first_pci == NULL) die(exit_not_found, "--file-prefix needs a PCI address, and none of the devices has one");
  return arena_format(arguments->arena, "--file-prefix=%s", arguments->first_pci);
}

static void add_device(struct arguments *arguments, const struct request *request, const struct device *device) {
  struct arena *arena = arguments->arena;
  const char *path = request->parts->document->path;
  const char *name = device->name == NULL ? "a device" : device->name;
  bool is_asked_for = arguments->options->count > 0;
  if (!is_for_dpdk(arena, device)) {
    const char *interface = device_field(arena, device, field_interface);
    if (arguments->options->af_packet && interface != NULL) {
      add_interface(arguments, interface);
      keep_first(arguments, device);
    } else if (is_asked_for) {
      die(exit_not_found, "%s of %s/%s is bound to %s, which DPDK cannot use: its class has to say driver: vfio-pci", name,
          request->claim, request->name, device_field(arena, device, field_driver));
    }
    return;
  }
  const char *pci = device_field(arena, device, field_pci);
  if (pci == NULL && !is_asked_for) return;
  if (pci == NULL) die(exit_not_found, "%s of %s/%s has no PCI address in %s", name, request->claim, request->name, path);
  if (!is_pci_address(pci)) die(exit_malformed, "%s: %s has the PCI address \"%s\"", path, name, pci);
  add_pci_device(arguments, pci);
  keep_first(arguments, device);
}

char **build_eal_args(struct arena *arena, const struct options *options, const struct catalog *catalog) {
  struct arguments arguments = {.arena = arena, .options = options};
  // One more each for --no-pci, --lcores, --file-prefix and the NULL.
  arguments.items = arena_alloc(arena, (2 * count_devices(catalog) + 4) * sizeof *arguments.items);
  for (const struct request *request = catalog->requests; request != NULL; request = request->next) {
    for (const struct device *device = request->devices; device != NULL; device = device->next) {
      add_device(&arguments, request, device);
    }
  }
  // Without an allow-list DPDK takes every device that it sees: an empty list must not cause that.
  if (arguments.count == 0) {
    die(exit_not_found, "no device for DPDK: %s",
        options->af_packet ? "none has a PCI address or an interface" : "none is bound to vfio-pci or the like");
  }
  if (arguments.count == arguments.virtual_count) arguments.items[arguments.count++] = arena_format(arena, "--no-pci");
  if (options->lcores) arguments.items[arguments.count++] = build_lcores(arena);
  if (options->file_prefix) arguments.items[arguments.count++] = build_file_prefix(&arguments);
  return arguments.items;
}

enum exit_code run_eal_args(struct arena *arena, const struct options *options) {
  struct catalog catalog;
  load_or_die(arena, options, &catalog);
  enum exit_code code = report(&catalog);
  if (code != exit_ok) return code;
  const char *separator = "";
  for (char **item = build_eal_args(arena, options, &catalog); *item != NULL; item++, separator = " ") {
    printf("%s%s", separator, *item);
  }
  putchar('\n');
  return exit_ok;
}
