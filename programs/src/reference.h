/* How the user names a request of a claim. */
#ifndef NETDRA_REFERENCE_H
#define NETDRA_REFERENCE_H

#include "arena.h"
#include "problem.h"

/* The kind of name by which a claim is known: layout v1 separates them by folders, the others do not record it. */
enum claim_kind { kind_unknown, kind_claim, kind_template, kind_extended };

/*
 * `claim/request`, or `claim/request/subrequest` for a subrequest chosen by firstAvailable. `claim` is the name of the
 * claim, or the pod's own name for a claim made from a template. Or the name of an extended resource that the container
 * asks for, such as `example.com/vf`, with its domain as `claim`. The prefix `resourceclaims/`, `resourceclaimtemplates/` or
 * `extended-resources/` selects one of the three, as in the paths of layout v1.
 */
struct reference {
  const char *text; /* as given */
  enum claim_kind kind;
  const char *claim, *request;
  const char *subrequest; /* or NULL */
};

/* Fails with exit_usage. */
bool reference_parse(struct arena *arena, const char *text, struct reference *reference, struct problem *problem);

/* `resourceclaims`, `resourceclaimtemplates` or `extended-resources`. */
const char *claim_folder(enum claim_kind kind);

/* Whether a claim and a request match the reference; a reference without kind matches all kinds. */
bool reference_fits(const struct reference *reference, enum claim_kind kind, const char *claim, const char *request);

/* The part of `request/subrequest` before the slash. */
const char *base_request(struct arena *arena, const char *request);

#endif
