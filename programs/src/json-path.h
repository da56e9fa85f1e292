/*
 * The small subset of JSONPath that a metadata document needs:
 *
 *   .name       a member whose name is made of letters, digits, `_` and `-`
 *   ['name']    a member of any name; or ["name"]; a backslash escapes the next character
 *   [3]         an element, from 0
 *   [*]         every element of a list, every member of an object
 *
 * One leading `$` is allowed. `$`, `.` and the empty text are the value itself.
 */
#ifndef NETDRA_JSON_PATH_H
#define NETDRA_JSON_PATH_H

#include "json.h"

/* One step of a path. The last one has `next` NULL. */
struct json_path {
  const char *key; /* NULL: by index */
  size_t index;
  bool every; /* [*] */
  struct json_path *next;
};

/* Fills in `path`, NULL for the value itself. Fails with exit_usage, the text and the position of the error. */
bool json_path_parse(struct arena *arena, const char *text, struct json_path **path, struct problem *problem);

/* Calls `visit` for each value that the path matches, in order. Returns their number. */
size_t json_path_visit(const struct json *value, const struct json_path *path,
                       void (*visit)(const struct json *value, void *context), void *context);

#endif
