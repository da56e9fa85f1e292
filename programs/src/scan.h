/* Finds metadata files. Reads directories only. */
#ifndef NETDRA_SCAN_H
#define NETDRA_SCAN_H

#include "reference.h"

enum layout { layout_default, layout_v1, layout_kep, layout_attributes_json, layout_downward_api };

/* Where to look. */
struct place {
  const char *root;   /* prefix of the default paths, "" in a container */
  const char *path;   /* a file or folder instead of the default paths, or NULL */
  enum layout layout; /* layout_default: v1, then kep */
};

/* A file found in a layout's place. */
struct candidate {
  const char *path;
  const char *file; /* the last part of the path */
  enum claim_kind kind;
  const char *claim, *request; /* from the folders, for an extended resource its domain and name; NULL if only the content has them */
  struct candidate *next;
};

/* Finds a layout by name. Fails with exit_usage and the valid names. */
bool layout_parse(const char *name, enum layout *layout, struct problem *problem);

/*
 * The files in the order v1, kep, flat layouts, and by name within each. A driver's file that two layouts have for the same
 * claim and request is listed once. A missing folder is not a failure; an unreadable one is: exit_system.
 */
bool scan_files(struct arena *arena, const struct place *place, struct candidate **files, struct problem *problem);

/* The folders that are searched, for messages. */
const char *describe_place(struct arena *arena, const struct place *place);

#endif
