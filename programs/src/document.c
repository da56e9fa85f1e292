#include "document.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>


static bool refuse(struct problem *problem, const struct document *document, const char *where, const char *expected,
                   const struct json *found) {
  return fail(problem, exit_malformed, "%s is no metadata: %s: %s expected, %s found", document->path, where, expected,
              json_type_name(found));
}

/* Absent and null are valid; any other value must have the type. */
static bool check_optional(struct problem *problem, const struct document *document, const struct json *parent,
                           const char *key, enum json_type type, const char *where) {
  const struct json *value = json_member(parent, key);
  if (value == NULL || value->type == json_null || value->type == type) return true;
  const struct json wanted = {.type = type};
  return refuse(problem, document, where, json_type_name(&wanted), value);
}

static bool check_texts(struct problem *problem, const struct document *document, const struct json *list,
                        const char *where) {
  if (list == NULL || list->type != json_array) return true;
  for (const struct json *text = list->first; text != NULL; text = text->next) {
    if (text->type != json_string) return refuse(problem, document, where, "strings", text);
  }
  return true;
}

static bool check_network_data(struct problem *problem, const struct document *document, const struct json *parent) {
  static const char *const strings[] = {"interfaceName", "hardwareAddress", "hwAddress"};
  static const char *const lists[] = {"ips", "addresses"};
  if (!check_optional(problem, document, parent, "networkData", json_object, "networkData of a device")) return false;
  const struct json *data = json_member(parent, "networkData");
  for (size_t index = 0; index < sizeof strings / sizeof *strings; index++) {
    if (!check_optional(problem, document, data, strings[index], json_string, strings[index])) return false;
  }
  for (size_t index = 0; index < sizeof lists / sizeof *lists; index++) {
    if (!check_optional(problem, document, data, lists[index], json_array, lists[index])) return false;
    if (!check_texts(problem, document, json_member(data, lists[index]), lists[index])) return false;
  }
  return true;
}

static bool check_device(struct problem *problem, const struct document *document, const struct json *device) {
  static const char *const names[] = {"driver", "pool", "name"};
  static const char *const objects[] = {"attributes", "bestEffortData", "driverProvidedData"};
  if (device->type != json_object) return refuse(problem, document, "devices of a request", "objects", device);
  for (size_t index = 0; index < sizeof names / sizeof *names; index++) {
    if (!check_optional(problem, document, device, names[index], json_string, names[index])) return false;
  }
  for (size_t index = 0; index < sizeof objects / sizeof *objects; index++) {
    if (!check_optional(problem, document, device, objects[index], json_object, objects[index])) return false;
  }
  return check_network_data(problem, document, device) &&
         check_network_data(problem, document, json_member(device, "driverProvidedData"));
}

/* `key` is the key of a request's name. */
static bool check_requests(struct problem *problem, const struct document *document, const struct json *parent,
                           const char *key) {
  if (!check_optional(problem, document, parent, "requests", json_array, "requests")) return false;
  const struct json *requests = json_member(parent, "requests");
  for (const struct json *each = requests == NULL ? NULL : requests->first; each != NULL; each = each->next) {
    if (json_string_of(json_member(each, key)) == NULL) {
      return refuse(problem, document, key, "a string in a request", json_member(each, key));
    }
    if (!check_optional(problem, document, each, "attributes", json_object, "attributes of a request")) return false;
    if (!check_optional(problem, document, each, "devices", json_array, "devices of a request")) return false;
    const struct json *devices = json_member(each, "devices");
    for (const struct json *one = devices == NULL ? NULL : devices->first; one != NULL; one = one->next) {
      if (!check_device(problem, document, one)) return false;
    }
  }
  return true;
}

static bool read_generation(struct problem *problem, struct document *document, const struct json *metadata) {
  const struct json *generation = json_member(metadata, "generation");
  if (generation == NULL || generation->type == json_null) return true;
  if (generation->type == json_number) {
    char *end;
    errno = 0;
    document->generation = strtoll(generation->text, &end, 10);
    if (errno == 0 && *end == '\0' && document->generation >= 0) return true;
  }
  return refuse(problem, document, "metadata.generation", "a whole number", generation);
}

/* Another kind would be a mistake of its writer, not a newer version. Claims may lack their names, as with the Go decoder. */
static bool decode_versioned(struct problem *problem, struct document *document, const char *kind) {
  const struct json *metadata = json_member(document->root, "metadata");
  if (strcmp(kind, "DeviceMetadata") != 0) {
    return fail(problem, exit_malformed, "%s is no metadata: kind DeviceMetadata expected, %s found", document->path, kind);
  }
  if (!check_optional(problem, document, metadata, "name", json_string, "metadata.name")) return false;
  document->claim = json_string_of(json_member(metadata, "name"));
  if (document->claim == NULL) document->claim = "";
  document->uid = json_string_of(json_member(metadata, "uid"));
  if (!check_optional(problem, document, document->root, "podClaimName", json_string, "podClaimName")) return false;
  document->pod_claim = json_string_of(json_member(document->root, "podClaimName"));
  return read_generation(problem, document, metadata) && check_requests(problem, document, document->root, "name");
}

static bool decode_attributes(struct problem *problem, struct document *document) {
  const struct json *claims = json_member(document->root, "claims");
  for (const struct json *claim = claims->first; claim != NULL; claim = claim->next) {
    const struct json *name = json_member(claim, "claimName");
    if (json_string_of(name) == NULL) return refuse(problem, document, "claimName", "a string in a claim", name);
    if (!check_requests(problem, document, claim, "requestName")) return false;
  }
  return true;
}

/* Whether the version is supported; if so, sets the shape. */
static bool knows_version(struct document *document, const char *version) {
  static const struct {
    const char *version;
    enum shape shape;
  } known[] = {
      {"metadata.resource.k8s.io/v1beta1", shape_device_metadata},
      {"metadata.resource.k8s.io/v1alpha1", shape_device_metadata},
      {"dra.k8s.io/v1alpha1", shape_downward_api},
  };
  for (size_t index = 0; index < sizeof known / sizeof *known; index++) {
    document->shape = known[index].shape;
    if (strcmp(known[index].version, version) == 0) return true;
  }
  return false;
}

/* Whether `object` is the one to decode; if so, decodes it, successfully or not. Remembers an unknown version. */
static bool takes(struct arena *arena, struct document *document, const struct json *object, const char **unknown,
                  struct problem *problem) {
  const struct json *claims = json_member(object, "claims");
  const char *version = json_string_of(json_member(object, "apiVersion"));
  const char *kind = json_string_of(json_member(object, "kind"));
  document->root = object;
  if (version == NULL && claims != NULL && claims->type == json_array) {
    document->shape = shape_attributes;
    decode_attributes(problem, document);
    return true;
  }
  if (version == NULL || kind == NULL) {
    fail(problem, exit_malformed, "%s is no metadata: an object without apiVersion and kind", document->path);
    return true;
  }
  if (!knows_version(document, version)) {
    // Limited because the message is: a file with a million unknown objects must not use up the memory.
    if (strlen(*unknown) > 500) return false;
    *unknown = arena_format(arena, "%s%s%s %s", *unknown, **unknown == '\0' ? "" : ", ", version, kind);
    return false;
  }
  decode_versioned(problem, document, kind);
  return true;
}

struct document *document_parse(struct arena *arena, const char *path, const char *text, size_t length,
                                struct problem *problem) {
  struct json_source source = {text, length, 0};
  struct document *document = arena_alloc(arena, sizeof *document);
  const char *unknown = "";
  document->path = path;
  for (;;) {
    struct problem syntax = {0};
    const struct json *object = json_read(arena, &source, &syntax);
    if (syntax.code != exit_ok) {
      fail(problem, syntax.code, "%s is no metadata: %s", path, syntax.text);
      return NULL;
    }
    if (object == NULL) break;
    if (takes(arena, document, object, &unknown, problem)) return problem->code == exit_ok ? document : NULL;
  }
  if (*unknown == '\0') {
    fail(problem, exit_not_found, "%s is empty: its driver has not written it yet, or has withdrawn it", path);
  } else {
    fail(problem, exit_malformed, "%s has no version that is known here (unknown: %s)", path, unknown);
  }
  return NULL;
}
