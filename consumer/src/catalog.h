/* What the files say, by claim and request. */
#ifndef NETDRA_CATALOG_H
#define NETDRA_CATALOG_H

#include "document.h"
#include "scan.h"

/* One device of a request. */
struct device {
  const char *driver, *pool, *name; /* NULL where the layout does not tell */
  const struct json *data;
  struct device *next;
};

/* One file that tells of a request, and where in it. */
struct part {
  const struct document *document;
  const struct json *request;
  struct part *next;
};

/* A request of a claim, as all drivers tell it. */
struct request {
  enum claim_kind kind;
  const char *claim;
  const char *name; /* without a subrequest */
  const char *full_name;
  struct part *parts;     /* at least one, in the order of the files' names */
  struct device *devices, **devices_end; /* those of all parts, and where the next one goes */
  long long generation;   /* the lowest of the parts */
  struct request *next;
};

struct catalog {
  struct request *requests;
  const char *available; /* names that folders have, for messages; "" if none */
  struct complaint {
    struct problem problem;
    struct complaint *next;
  } *complaints; /* files that could not be read */
};

/*
 * Reads the files at `place`: of the requests that are referred to, or of all for a `count` of 0. Each reference is of one
 * request afterwards, or a complaint says why not: exit_not_found, or exit_usage if it fits several. Nothing at all is
 * exit_not_found, too.
 */
void catalog_load(struct arena *arena, const struct place *place, const struct reference *references, size_t count,
                  struct catalog *catalog);

/* How the user names a request: with a folder before it where two have the same name. */
const char *reference_of(struct arena *arena, const struct catalog *catalog, const struct request *request);

#endif
