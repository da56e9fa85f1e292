#include "reference.h"

#include <string.h>

/* Takes the part up to the next slash. NULL when none is left, or the part cannot be a name. */
static const char *take_part(struct arena *arena, const char **rest) {
  if (*rest == NULL) return NULL;
  const char *slash = strchr(*rest, '/');
  size_t length = slash == NULL ? strlen(*rest) : (size_t)(slash - *rest);
  const char *part = arena_copy(arena, *rest, length);
  *rest = slash == NULL ? NULL : slash + 1;
  // Parts become parts of paths.
  return *part == '\0' || strcmp(part, ".") == 0 || strcmp(part, "..") == 0 ? NULL : part;
}

const char *claim_folder(enum claim_kind kind) {
  static const char *const folders[] = {"resourceclaims", "resourceclaims", "resourceclaimtemplates", "extended-resources"};
  return folders[kind];
}

static enum claim_kind kind_of_folder(const char *folder) {
  for (enum claim_kind kind = kind_claim; kind <= kind_extended; kind++) {
    if (strcmp(folder, claim_folder(kind)) == 0) return kind;
  }
  return kind_unknown;
}

bool reference_parse(struct arena *arena, const char *text, struct reference *reference, struct problem *problem) {
  const char *rest = text;
  *reference = (struct reference){.text = text};
  reference->claim = take_part(arena, &rest);
  reference->request = take_part(arena, &rest);
  if (reference->request != NULL && rest != NULL && kind_of_folder(reference->claim) != kind_unknown) {
    reference->kind = kind_of_folder(reference->claim);
    reference->claim = reference->request;
    reference->request = take_part(arena, &rest);
  }
  bool more = rest != NULL;
  reference->subrequest = take_part(arena, &rest);
  if (reference->claim != NULL && reference->request != NULL && rest == NULL && more == (reference->subrequest != NULL)) {
    return true;
  }
  return fail(problem, exit_usage, "%s: a claim and a request expected, as in nic/vf, or an extended resource", text);
}

bool reference_fits(const struct reference *reference, enum claim_kind kind, const char *claim, const char *request) {
  return (reference->kind == kind_unknown || reference->kind == kind) && strcmp(reference->claim, claim) == 0 &&
         strcmp(reference->request, request) == 0;
}

const char *base_request(struct arena *arena, const char *request) {
  const char *slash = strchr(request, '/');
  return slash == NULL ? request : arena_copy(arena, request, (size_t)(slash - request));
}
