/* Reading a file that its writer updates in place. */
#ifndef NETDRA_STABLE_FILE_H
#define NETDRA_STABLE_FILE_H

#include "arena.h"
#include "problem.h"

/* Larger than any metadata: what the tool reads of files is bounded. */
enum { max_file_bytes = 4 * 1024 * 1024 };

/*
 * The whole file, with a NUL behind it. The writer changes it by one pwrite, padded with blanks, which a reader can see
 * half done: so it is read until two reads in a row agree. NULL: exit_not_found if there is no such file, exit_system
 * if it cannot be read, exit_malformed if it is too large, no regular file, or never the same twice.
 */
char *read_stable_file(struct arena *arena, const char *path, size_t *length, struct problem *problem);

#endif
