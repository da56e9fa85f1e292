/* Contents of the files, by claim and request. */
#ifndef NETDRA_CATALOG_H
#define NETDRA_CATALOG_H

#include "document.h"
#include "scan.h"

/* One device of a request. */
struct device {
  const char *driver, *pool, *name; /* NULL if the layout does not record it */
  const struct json *data;
  struct device *next;
};

/* One file that describes a request, and the position in it. */
struct part {
  const struct document *document;
  const struct json *request;
  struct part *next;
};

/* A request of a claim, merged from the files of all drivers. */
struct request {
  enum claim_kind kind;
  const char *claim;
  const char *name; /* without a subrequest */
  const char *full_name;
  struct part *parts;     /* at least one, in the order of the files' names */
  struct device *devices, **devices_end; /* those of all parts, and where the next one is added */
  long long generation;   /* the lowest of the parts */
  struct request *next;
};

struct catalog {
  struct request *requests;
  const char *available; /* names taken from folders, for messages; "" if none */
  struct complaint {
    struct problem problem;
    struct complaint *next;
  } *complaints; /* files that could not be read */
};

/*
 * Reads the files at `place`: those of the referenced requests, or all if `count` is 0. Afterwards each reference matches one
 * request, or a complaint gives the reason: exit_not_found, or exit_usage if it matches several. No metadata at all is
 * exit_not_found, too.
 */
void catalog_load(struct arena *arena, const struct place *place, const struct reference *references, size_t count,
                  struct catalog *catalog);

/* The reference that a user writes for a request: with a folder before it where two have the same name. */
const char *reference_of(struct arena *arena, const struct catalog *catalog, const struct request *request);

#endif
