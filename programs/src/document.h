/* A metadata file, in any of the four layouts, which are distinguished by their content. */
#ifndef NETDRA_DOCUMENT_H
#define NETDRA_DOCUMENT_H

#include "json.h"

enum shape {
  shape_device_metadata, /* metadata.resource.k8s.io: layouts v1 and kep */
  shape_downward_api,    /* dra.k8s.io: layout downward-api */
  shape_attributes,      /* no version, a list of claims: layout attributes-json */
};

struct document {
  const char *path;
  enum shape shape;
  const struct json *root;
  const char *claim;     /* name of the claim; NULL for shape_attributes, which can describe several */
  const char *pod_claim; /* the pod's own name for a claim made from a template, else NULL */
  const char *uid;       /* of the claim, or NULL */
  long long generation;  /* 1 and up; 0 where the layout has none */
};

/*
 * Decodes the text of a file. In a stream of objects the first one with a known version counts; unknown versions before it
 * are skipped, and what follows it is not read. Returns NULL with the path and the reason: exit_malformed, or
 * exit_not_found for nothing but blanks, as in a file that has not been written yet.
 */
struct document *document_parse(struct arena *arena, const char *path, const char *text, size_t length,
                                struct problem *problem);

#endif
