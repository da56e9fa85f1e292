#include <stdio.h>
#include <string.h>

#include "commands.h"
#include "json-path.h"

/* A shallow copy of the value: its children are shared. */
static struct json *copy(struct arena *arena, const struct json *value) {
  struct json *result = json_new(arena, value->type, value->key, value->text);
  result->first = value->first;
  return result;
}

/* A copy of an object with that member replaced. */
static struct json *with_member(struct arena *arena, const struct json *object, const char *key, struct json *member) {
  struct json *result = json_new(arena, json_object, object->key, NULL);
  struct json **end = &result->first;
  for (const struct json *each = object->first; each != NULL; each = each->next) {
    if (strcmp(each->key, key) == 0) continue;
    *end = copy(arena, each);
    end = &(*end)->next;
  }
  member->key = key;
  *end = member;
  return result;
}

static struct json *list_devices(struct arena *arena, const struct request *request) {
  struct json *list = json_new(arena, json_array, NULL, NULL);
  struct json **end = &list->first;
  for (const struct device *device = request->devices; device != NULL; device = device->next) {
    *end = copy(arena, device->data);
    end = &(*end)->next;
  }
  return list;
}

/*
 * The document of a request. Files of several drivers are merged: identity from the first, all devices, and the lowest
 * generation. A file that describes more than the request, as the older layouts may, is returned unchanged.
 */
static const struct json *merge(struct arena *arena, const struct request *request) {
  const struct document *document = request->parts->document;
  if (request->parts->next == NULL || document->shape != shape_device_metadata) return document->root;
  struct json *generation = json_new(arena, json_number, NULL, arena_format(arena, "%lld", request->generation));
  struct json *metadata = with_member(arena, json_member(document->root, "metadata"), "generation", generation);
  struct json *requests = json_new(arena, json_array, NULL, NULL);
  requests->first = with_member(arena, request->parts->request, "devices", list_devices(arena, request));
  struct json *root = with_member(arena, document->root, "metadata", metadata);
  return with_member(arena, root, "requests", requests);
}

static void print_value(const struct json *value, void *context) {
  (void)context;
  json_print(stdout, value);
}

/* Objects and lists as JSON, everything else as its bare text, one per line. */
enum exit_code run_get(struct arena *arena, const struct options *options) {
  struct catalog catalog;
  struct problem problem = {0};
  struct json_path *path;
  struct options selection = *options;
  if (options->count < 1 || options->count > 2) die(exit_usage, "get takes CLAIM/REQUEST and a JSONPath, see --help");
  const char *text = options->count == 2 ? options->arguments[1] : "";
  if (!json_path_parse(arena, text, &path, &problem)) die(problem.code, "%s", problem.text);
  selection.count = 1;
  load_or_die(arena, &selection, &catalog);
  enum exit_code code = report(&catalog);
  if (code != exit_ok) return code;
  if (json_path_visit(merge(arena, catalog.requests), path, print_value, NULL) > 0) return exit_ok;
  die(exit_not_found, "%s has nothing at %s in %s", options->arguments[0], text,
      catalog.requests->parts->document->path);
}
