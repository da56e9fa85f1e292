#include "catalog.h"

#include <string.h>

#include "stable-file.h"

/* State while a catalog is loaded. */
struct loader {
  struct arena *arena;
  struct catalog *catalog;
  const struct reference *references;
  size_t count;
};

static void add_complaint(struct loader *loader, const struct problem *problem) {
  struct complaint **end = &loader->catalog->complaints;
  while (*end != NULL) end = &(*end)->next;
  *end = arena_alloc(loader->arena, sizeof **end);
  (*end)->problem = *problem;
}

static bool is_wanted(const struct loader *loader, enum claim_kind kind, const char *claim, const char *request) {
  for (size_t index = 0; index < loader->count; index++) {
    if (reference_fits(&loader->references[index], kind, claim, request)) return true;
  }
  return loader->count == 0;
}

static bool is_same_text(const char *a, const char *b) { return a != NULL && b != NULL && strcmp(a, b) == 0; }

/* Whether `request` has a generated claim name, and `other` is the same request under the name in the pod. */
static bool is_second_name(const struct request *request, const struct request *other) {
  const struct document *document = request->parts->document;
  return request->kind == kind_unknown && other != request && is_same_text(request->claim, document->claim) &&
         is_same_text(request->name, other->name) && is_same_text(document->uid, other->parts->document->uid);
}

/* Layouts kep and downward-api store the files of a template's claim twice. */
static void drop_second_names(struct catalog *catalog) {
  for (struct request **at = &catalog->requests; *at != NULL;) {
    const struct request *other = catalog->requests;
    while (other != NULL && !is_second_name(*at, other)) other = other->next;
    if (other == NULL) {
      at = &(*at)->next;
    } else {
      *at = (*at)->next;
    }
  }
}

/* Finds or creates the request of that name. Layout kep does not record the kind: it joins an existing request. */
static struct request *find_request(struct loader *loader, enum claim_kind kind, const char *claim, const char *name) {
  struct request **end = &loader->catalog->requests;
  for (; *end != NULL; end = &(*end)->next) {
    bool kinds_fit = kind == kind_unknown || (*end)->kind == kind;
    if (kinds_fit && strcmp((*end)->claim, claim) == 0 && strcmp((*end)->name, name) == 0) return *end;
  }
  *end = arena_alloc(loader->arena, sizeof **end);
  **end = (struct request){.kind = kind, .claim = claim, .name = name, .full_name = name};
  (*end)->devices_end = &(*end)->devices;
  return *end;
}

static void add_device(struct loader *loader, struct request *request, const struct json *data) {
  struct device *device = arena_alloc(loader->arena, sizeof *device);
  *device = (struct device){
      .driver = json_string_of(json_member(data, "driver")),
      .pool = json_string_of(json_member(data, "pool")),
      .name = json_string_of(json_member(data, "name")),
      .data = data,
  };
  *request->devices_end = device;
  request->devices_end = &device->next;
}

static void add_part(struct loader *loader, struct request *request, const struct document *document,
                     const struct json *entry) {
  struct part **end = &request->parts;
  if (*end == NULL) {
    request->generation = document->generation;
    const char *name = json_string_of(json_member(entry, "name"));
    if (name != NULL) request->full_name = name;
  }
  while (*end != NULL) end = &(*end)->next;
  *end = arena_alloc(loader->arena, sizeof **end);
  **end = (struct part){.document = document, .request = entry};
  if (document->generation < request->generation) request->generation = document->generation;

  const struct json *devices = json_member(entry, "devices");
  // The flat layout has one set of attributes for all devices of a request.
  if (document->shape == shape_attributes) add_device(loader, request, entry);
  if (document->shape == shape_attributes || devices == NULL) return;
  for (const struct json *each = devices->first; each != NULL; each = each->next) add_device(loader, request, each);
}

/*
 * The pod's author knows a claim by the name that is a part of the path: of the folder, or in layout downward-api of the
 * file, which is `claim.request.json`. In other layouts the name comes from the document.
 */
static const char *name_in_path(struct loader *loader, const struct candidate *file, const struct document *document,
                                const char *request) {
  if (file->claim != NULL || document->shape != shape_downward_api) return file->claim;
  const char *end = arena_format(loader->arena, ".%s.json", request);
  size_t length = strlen(file->file), end_length = strlen(end);
  if (length <= end_length || strcmp(file->file + length - end_length, end) != 0) return NULL;
  return arena_copy(loader->arena, file->file, length - end_length);
}

/* Adds a list of requests to the catalog. `name_key` is the key of a request's name. */
static bool add_requests(struct loader *loader, const struct candidate *file, const struct document *document,
                         const char *claim, const struct json *requests, const char *name_key) {
  if (requests == NULL) return true;
  for (const struct json *entry = requests->first; entry != NULL; entry = entry->next) {
    const char *name = base_request(loader->arena, json_string_of(json_member(entry, name_key)));
    // The scheduler has chosen the name of the request.
    if (file->kind == kind_extended) name = file->request;
    if (file->request != NULL && strcmp(file->request, name) != 0) {
      struct problem problem;
      fail(&problem, exit_malformed, "%s is no metadata of request %s: it describes %s", file->path, file->request, name);
      add_complaint(loader, &problem);
      return false;
    }
    const char *known_as = name_in_path(loader, file, document, name);
    if (known_as == NULL) known_as = claim;
    if (is_wanted(loader, file->kind, known_as, name)) {
      add_part(loader, find_request(loader, file->kind, known_as, name), document, entry);
    }
  }
  return true;
}

static void add_document(struct loader *loader, const struct candidate *file, const struct document *document) {
  if (document->shape != shape_attributes) {
    const char *claim = document->pod_claim != NULL ? document->pod_claim : document->claim;
    add_requests(loader, file, document, claim, json_member(document->root, "requests"), "name");
    return;
  }
  const struct json *claims = json_member(document->root, "claims");
  for (const struct json *each = claims->first; each != NULL; each = each->next) {
    const char *claim = json_string_of(json_member(each, "claimName"));
    if (!add_requests(loader, file, document, claim, json_member(each, "requests"), "requestName")) return;
  }
}

static void load_file(struct loader *loader, const struct candidate *file) {
  struct problem problem = {0};
  // The same file is there under the names of its claim and request.
  if (file->kind == kind_extended && loader->count == 0) return;
  if (file->claim != NULL && !is_wanted(loader, file->kind, file->claim, file->request)) return;
  size_t length;
  const char *text = read_stable_file(loader->arena, file->path, &length, &problem);
  // Removed between the listing and the read: treated as if it had never existed.
  if (text == NULL && problem.code == exit_not_found) return;
  const struct document *document =
      text == NULL ? NULL : document_parse(loader->arena, file->path, text, length, &problem);
  if (document == NULL) {
    add_complaint(loader, &problem);
    return;
  }
  add_document(loader, file, document);
}

/* For the not-found message: names from folders, each once, as many as fit on a screen. */
static void note_available(struct loader *loader, const struct candidate *file) {
  const char **available = &loader->catalog->available;
  if (file->claim == NULL || strlen(*available) > 500) return;
  const char *name = arena_format(loader->arena, "%s/%s", file->claim, file->request);
  const char *found = strstr(*available, name);
  if (found != NULL && (found[strlen(name)] == ',' || found[strlen(name)] == '\0')) return;
  *available = arena_format(loader->arena, "%s%s%s", *available, **available == '\0' ? "" : ", ", name);
}

/* Checks that a reference matches exactly one request, and the subrequest that it names. */
static void check_reference(struct loader *loader, const struct place *place, const struct reference *reference) {
  struct problem problem;
  const struct request *found = NULL;
  for (const struct request *each = loader->catalog->requests; each != NULL; each = each->next) {
    if (!reference_fits(reference, each->kind, each->claim, each->name)) continue;
    if (found != NULL) {
      fail(&problem, exit_usage, "%s is of two kinds: say %s/%s or %s/%s", reference->text, claim_folder(found->kind),
           reference->text, claim_folder(each->kind), reference->text);
      add_complaint(loader, &problem);
      return;
    }
    found = each;
  }
  const char *slash = found == NULL ? NULL : strchr(found->full_name, '/');
  if (found == NULL) {
    const char *available = loader->catalog->available;
    fail(&problem, exit_not_found, "no metadata of %s in %s (%s%s)", reference->text, describe_place(loader->arena, place),
         *available == '\0' ? "there is none" : "there is: ", available);
  } else if (reference->subrequest != NULL && !is_same_text(slash == NULL ? NULL : slash + 1, reference->subrequest)) {
    fail(&problem, exit_not_found, "%s was not chosen: the metadata is of %s/%s", reference->text, found->claim,
         found->full_name);
  } else {
    return;
  }
  add_complaint(loader, &problem);
}

void catalog_load(struct arena *arena, const struct place *place, const struct reference *references, size_t count,
                  struct catalog *catalog) {
  struct loader loader = {arena, catalog, references, count};
  struct problem problem = {0};
  struct candidate *files;
  *catalog = (struct catalog){.available = ""};
  if (!scan_files(arena, place, &files, &problem)) {
    add_complaint(&loader, &problem);
    return;
  }
  for (const struct candidate *file = files; file != NULL; file = file->next) {
    note_available(&loader, file);
    load_file(&loader, file);
  }
  if (catalog->complaints != NULL) return;
  if (count == 0) drop_second_names(catalog);
  for (size_t index = 0; index < count; index++) check_reference(&loader, place, &references[index]);
  if (count == 0 && catalog->requests == NULL) {
    fail(&problem, exit_not_found, "no metadata in %s", describe_place(arena, place));
    add_complaint(&loader, &problem);
  }
}

const char *reference_of(struct arena *arena, const struct catalog *catalog, const struct request *request) {
  bool is_shared = false;
  for (const struct request *each = catalog->requests; each != NULL; each = each->next) {
    is_shared |= each != request && strcmp(each->claim, request->claim) == 0 && strcmp(each->name, request->name) == 0;
  }
  if (!is_shared || request->kind == kind_unknown) return arena_format(arena, "%s/%s", request->claim, request->name);
  return arena_format(arena, "%s/%s/%s", claim_folder(request->kind), request->claim, request->name);
}
