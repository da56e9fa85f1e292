#include <stdio.h>
#include <string.h>

#include "commands.h"

static const char *const field_names[field_count] = {
    [field_pci] = "PCI",       [field_interface] = "INTERFACE", [field_mac] = "MAC",
    [field_ips] = "IPS",       [field_mtu] = "MTU",             [field_vlan] = "VLAN",
    [field_numa_node] = "NUMA_NODE", [field_driver] = "DRIVER", [field_vfio_device] = "VFIO_DEVICE",
};

/* A growing list of texts. */
struct texts {
  struct arena *arena;
  char **items;
  size_t count, room;
};

/* Names of claims and requests allow more characters than variable names: two of them can become equal. */
static void add(struct texts *texts, const char *name, const char *value) {
  size_t length = strlen(name);
  for (size_t index = 0; index < texts->count; index++) {
    const char *other = texts->items[index];
    if (strncmp(other, name, length) != 0 || other[length] != '=') continue;
    if (strcmp(other + length + 1, value) == 0) return;
    die(exit_usage, "two requests give the variable %s: ask for one after the other, each with a --prefix", name);
  }
  if (texts->count + 2 > texts->room) {
    texts->room = 2 * texts->room + 16;
    char **items = arena_alloc(texts->arena, texts->room * sizeof *items);
    if (texts->count > 0) memcpy(items, texts->items, texts->count * sizeof *items);
    texts->items = items;
  }
  texts->items[texts->count++] = arena_format(texts->arena, "%s=%s", name, value);
}

/* `text` in upper case, with `_` for characters that a variable name cannot have. */
static char *to_name(struct arena *arena, const char *text) {
  char *name = arena_copy(arena, text, strlen(text));
  for (char *at = name; *at != '\0'; at++) {
    if (*at >= 'a' && *at <= 'z') {
      *at = (char)(*at - 'a' + 'A');
    } else if (!((*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9'))) {
      *at = '_';
    }
  }
  return name;
}

/* A device's variables, with its number; those of the first one also without it: most requests have one device. */
static void add_device(struct texts *texts, const char *name, size_t index, const struct device *device) {
  struct arena *arena = texts->arena;
  for (enum field field = 0; field < field_count; field++) {
    const char *value = device_field(arena, device, field);
    if (value == NULL) continue;
    add(texts, arena_format(arena, "%s_%zu_%s", name, index, field_names[field]), value);
    if (index == 0) add(texts, arena_format(arena, "%s_%s", name, field_names[field]), value);
  }
}

static void add_request(struct texts *texts, const char *name, const struct request *request) {
  size_t count = 0;
  for (const struct device *device = request->devices; device != NULL; device = device->next) {
    add_device(texts, name, count++, device);
  }
  add(texts, arena_format(texts->arena, "%s_COUNT", name), arena_format(texts->arena, "%zu", count));
  add(texts, arena_format(texts->arena, "%s_GENERATION", name),
      arena_format(texts->arena, "%lld", request->generation));
}

char **build_env(struct arena *arena, const struct options *options, const struct catalog *catalog) {
  struct texts texts = {.arena = arena};
  const char *requests = "";
  const char *prefix = options->prefix == NULL ? "NETDRA" : options->prefix;
  // With a custom prefix a single request needs no name in its variables.
  bool is_short = options->prefix != NULL && options->count == 1;
  for (const struct request *request = catalog->requests; request != NULL; request = request->next) {
    const char *name = to_name(arena, arena_format(arena, "%s_%s", request->claim, request->name));
    add_request(&texts, is_short ? prefix : arena_format(arena, "%s_%s", prefix, name), request);
    requests = arena_format(arena, "%s%s%s", requests, *requests == '\0' ? "" : " ",
                            reference_of(arena, catalog, request));
  }
  add(&texts, arena_format(arena, "%s_REQUESTS", prefix), requests);
  return texts.items;
}

/* `NAME='value'`: within single quotes a shell takes every character literally, except a single quote. */
static void print_assignment(const char *text) {
  const char *value = strchr(text, '=') + 1;
  printf("%.*s'", (int)(value - text), text);
  for (; *value != '\0'; value++) {
    if (*value == '\'') {
      fputs("'\\''", stdout);
    } else {
      putchar(*value);
    }
  }
  puts("'");
}

enum exit_code run_env(struct arena *arena, const struct options *options) {
  struct catalog catalog;
  load_or_die(arena, options, &catalog);
  enum exit_code code = report(&catalog);
  if (code != exit_ok) return code;
  for (char **text = build_env(arena, options, &catalog); *text != NULL; text++) print_assignment(*text);
  return exit_ok;
}
