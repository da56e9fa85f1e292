/* Finding metadata files. Nothing is read here but directories. */
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

/* A file that a layout has in its place. */
struct candidate {
  const char *path;
  const char *file; /* the last part of the path */
  enum claim_kind kind;
  const char *claim, *request; /* as the folders say; NULL where only the content tells */
  struct candidate *next;
};

/* A layout by its name. Fails with exit_usage and the names. */
bool layout_parse(const char *name, enum layout *layout, struct problem *problem);

/*
 * The files, in the order v1, kep, flat layouts, within each by name. A file of one driver that two layouts have for the
 * same claim and request is there once. What is not there is no failure; a folder that cannot be read is: exit_system.
 */
bool scan_files(struct arena *arena, const struct place *place, struct candidate **files, struct problem *problem);

/* The folders that are looked at, for messages. */
const char *describe_place(struct arena *arena, const struct place *place);

#endif
