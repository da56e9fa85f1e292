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

static enum claim_kind kind_of_folder(const char *folder) {
  return strcmp(folder, "resourceclaims") == 0           ? kind_claim
         : strcmp(folder, "resourceclaimtemplates") == 0 ? kind_template
                                                         : kind_unknown;
}

const char *claim_folder(enum claim_kind kind) {
  return kind == kind_template ? "resourceclaimtemplates" : "resourceclaims";
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
  return fail(problem, exit_usage, "%s: a claim and a request expected, as in nic/vf", text);
}

bool reference_fits(const struct reference *reference, enum claim_kind kind, const char *claim, const char *request) {
  return (reference->kind == kind_unknown || reference->kind == kind) && strcmp(reference->claim, claim) == 0 &&
         strcmp(reference->request, request) == 0;
}

const char *base_request(struct arena *arena, const char *request) {
  const char *slash = strchr(request, '/');
  return slash == NULL ? request : arena_copy(arena, request, (size_t)(slash - request));
}
