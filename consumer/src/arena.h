/* Memory that is given back all at once: everything read in one look at the files lives in one arena. */
#ifndef NETDRA_ARENA_H
#define NETDRA_ARENA_H

#include <stddef.h>

struct arena {
  struct arena_block *blocks; /* the newest first; NULL in an empty arena */
};

/* Zeroed memory, aligned for anything. Ends the process when there is none. */
void *arena_alloc(struct arena *arena, size_t size);

/* A copy with a NUL behind it. */
char *arena_copy(struct arena *arena, const char *bytes, size_t length);

/* printf into the arena. */
char *arena_format(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3), nonnull(2), returns_nonnull));

/* Gives everything back; the arena is empty then and can be used again. */
void arena_free(struct arena *arena);

#endif
