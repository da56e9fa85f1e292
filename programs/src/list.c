#include <stdio.h>

#include "commands.h"

static void print_device(struct arena *arena, const char *reference, const struct request *request,
                         const struct device *device) {
  static const enum field fields[] = {field_pci, field_interface, field_mac};
  printf("%s\t%lld\t%s\t%s\t%s", reference, request->generation, device->driver == NULL ? "-" : device->driver,
         device->pool == NULL ? "-" : device->pool, device->name == NULL ? "-" : device->name);
  for (size_t index = 0; index < sizeof fields / sizeof *fields; index++) {
    const char *text = device_field(arena, device, fields[index]);
    printf("\t%s", text == NULL ? "-" : text);
  }
  const char *ips = device_field(arena, device, field_ips);
  putchar('\t');
  for (const char *at = ips == NULL ? "-" : ips; *at != '\0'; at++) putchar(*at == ' ' ? ',' : *at);
  putchar('\n');
}

/* One line per device, columns separated by tabs. Readable files are listed even if others cannot be read. */
enum exit_code run_list(struct arena *arena, const struct options *options) {
  struct catalog catalog;
  if (options->count > 0) die(exit_usage, "list takes no arguments, see --help");
  load_or_die(arena, options, &catalog);
  if (!options->no_headers && catalog.requests != NULL) {
    puts("REQUEST\tGENERATION\tDRIVER\tPOOL\tDEVICE\tPCI\tINTERFACE\tMAC\tIPS");
  }
  for (const struct request *request = catalog.requests; request != NULL; request = request->next) {
    const char *reference = reference_of(arena, &catalog, request);
    for (const struct device *device = request->devices; device != NULL; device = device->next) {
      print_device(arena, reference, request, device);
    }
  }
  return report(&catalog);
}
