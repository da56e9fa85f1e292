/* Reading a file that its writer updates in place. */
#ifndef NETDRA_STABLE_FILE_H
#define NETDRA_STABLE_FILE_H

#include "arena.h"
#include "problem.h"

/* Larger than any metadata: limits how much of a file is read. */
enum { max_file_bytes = 4 * 1024 * 1024 };

/*
 * The whole file, terminated by a NUL. The writer changes it by one pwrite, padded with blanks, of which a reader can see
 * a part: so it is read until two consecutive reads agree. NULL: exit_not_found if there is no such file, exit_system if
 * it cannot be read, exit_malformed if it is too large, not a regular file, or different on every read.
 */
char *read_stable_file(struct arena *arena, const char *path, size_t *length, struct problem *problem);

#endif
