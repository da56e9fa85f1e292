#include "scan.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Source of the paths: KEP-5304 as merged and as written, its October 2025 revision, and the DRA attributes downward API. */
static const char v1_folder[] = "/var/run/kubernetes.io/dra-device-attributes";
static const char kep_folder[] = "/var/run/dra-device-attributes";
static const char downward_folder[] = "/etc/dra";

struct scan {
  struct arena *arena;
  struct candidate *first, **end;
  struct problem *problem;
};

bool layout_parse(const char *name, enum layout *layout, struct problem *problem) {
  static const char *const names[] = {"", "v1", "kep", "attributes-json", "downward-api"};
  for (int index = layout_v1; index <= layout_downward_api; index++) {
    *layout = (enum layout)index;
    if (strcmp(names[index], name) == 0) return true;
  }
  return fail(problem, exit_usage, "--layout %s: v1, kep, attributes-json or downward-api expected", name);
}

static bool ends_with(const char *text, const char *end) {
  size_t length = strlen(text), end_length = strlen(end);
  return length > end_length && strcmp(text + length - end_length, end) == 0;
}

/* Whether layout v1 has the file for the same claim and request. */
static bool is_known(const struct scan *scan, const char *claim, const char *request, const char *file) {
  for (const struct candidate *each = scan->first; each != NULL; each = each->next) {
    if (each->claim != NULL && strcmp(each->claim, claim) == 0 && strcmp(each->request, request) == 0 &&
        strcmp(each->file, file) == 0) {
      return true;
    }
  }
  return false;
}

static void add(struct scan *scan, struct candidate found) {
  struct candidate *candidate = arena_alloc(scan->arena, sizeof *candidate);
  *candidate = found;
  *scan->end = candidate;
  scan->end = &candidate->next;
}

/* Called for each entry of a folder. `entry` has the folder's path, and the parts found so far. */
typedef void on_entry(struct scan *scan, const struct candidate *entry);

/* Visits a folder's entries by name, except those that start with a dot. */
static void visit_folder(struct scan *scan, const struct candidate *folder, on_entry *visit) {
  struct dirent **entries;
  int count = scandir(folder->path, &entries, NULL, alphasort);
  if (count < 0) {
    if (errno != ENOENT && errno != ENOTDIR) {
      fail(scan->problem, exit_system, "%s cannot be listed: %s", folder->path, strerror(errno));
    }
    return;
  }
  for (int index = 0; index < count; index++) {
    struct candidate entry = *folder;
    if (entries[index]->d_name[0] != '.') {
      entry.file = arena_format(scan->arena, "%s", entries[index]->d_name);
      entry.path = arena_format(scan->arena, "%s/%s", folder->path, entry.file);
      visit(scan, &entry);
    }
    free(entries[index]);
  }
  free(entries);
}

static void visit_driver_file(struct scan *scan, const struct candidate *entry) {
  if (!ends_with(entry->file, "-metadata.json")) return;
  // The same file again under the path of the KEP's text: the one of layout v1 counts.
  if (entry->kind == kind_unknown && is_known(scan, entry->claim, entry->request, entry->file)) return;
  add(scan, *entry);
}

static void visit_request(struct scan *scan, const struct candidate *entry) {
  struct candidate folder = *entry;
  folder.request = entry->file;
  visit_folder(scan, &folder, visit_driver_file);
}

static void visit_claim(struct scan *scan, const struct candidate *entry) {
  struct candidate folder = *entry;
  folder.claim = entry->file;
  visit_folder(scan, &folder, visit_request);
}

/* In the shared folder, the folders of layout v1 are not claims. */
static void visit_kep_claim(struct scan *scan, const struct candidate *entry) {
  for (enum claim_kind kind = kind_claim; kind <= kind_extended; kind++) {
    if (strcmp(entry->file, claim_folder(kind)) == 0) return;
  }
  visit_claim(scan, entry);
}

static void visit_flat_file(struct scan *scan, const struct candidate *entry) {
  if (ends_with(entry->file, ".json")) add(scan, *entry);
}

static void scan_v1(struct scan *scan, const char *path) {
  for (enum claim_kind kind = kind_claim; kind <= kind_extended; kind++) {
    struct candidate folder = {.kind = kind};
    folder.path = arena_format(scan->arena, "%s/%s", path, claim_folder(kind));
    visit_folder(scan, &folder, visit_claim);
  }
}

static void scan_kep(struct scan *scan, const char *path) {
  visit_folder(scan, &(struct candidate){.path = path}, visit_kep_claim);
}

static void scan_flat(struct scan *scan, const char *path) {
  visit_folder(scan, &(struct candidate){.path = path}, visit_flat_file);
}

static const char *below(struct scan *scan, const struct place *place, const char *folder) {
  return place->path != NULL ? place->path : arena_format(scan->arena, "%s%s", place->root, folder);
}

static void scan_path(struct scan *scan, const struct place *place) {
  struct stat status;
  const char *slash = strrchr(place->path, '/');
  if (stat(place->path, &status) != 0) {
    fail(scan->problem, errno == ENOENT ? exit_not_found : exit_system, "%s: %s", place->path, strerror(errno));
  } else if (!S_ISDIR(status.st_mode)) {
    add(scan, (struct candidate){.path = place->path, .file = slash == NULL ? place->path : slash + 1});
  } else if (place->layout == layout_default) {
    scan_v1(scan, place->path);
    scan_kep(scan, place->path);
    scan_flat(scan, place->path);
  }
}

bool scan_files(struct arena *arena, const struct place *place, struct candidate **files, struct problem *problem) {
  struct scan scan = {.arena = arena, .problem = problem};
  enum layout layout = place->layout;
  scan.end = &scan.first;
  if (place->path != NULL) scan_path(&scan, place);
  bool by_path = scan.first != NULL || (place->path != NULL && layout == layout_default);
  if (!by_path && problem->code == exit_ok) {
    if (layout == layout_default || layout == layout_v1) scan_v1(&scan, below(&scan, place, v1_folder));
    if (layout == layout_default || layout == layout_kep) scan_kep(&scan, below(&scan, place, kep_folder));
    if (layout == layout_attributes_json) scan_flat(&scan, below(&scan, place, kep_folder));
    if (layout == layout_downward_api) scan_flat(&scan, below(&scan, place, downward_folder));
  }
  *files = scan.first;
  return problem->code == exit_ok;
}

const char *describe_place(struct arena *arena, const struct place *place) {
  if (place->path != NULL) return place->path;
  if (place->layout == layout_v1) return arena_format(arena, "%s%s", place->root, v1_folder);
  if (place->layout == layout_downward_api) return arena_format(arena, "%s%s", place->root, downward_folder);
  if (place->layout != layout_default) return arena_format(arena, "%s%s", place->root, kep_folder);
  return arena_format(arena, "%s%s and %s%s", place->root, v1_folder, place->root, kep_folder);
}
