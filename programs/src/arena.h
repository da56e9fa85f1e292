/* Memory that is freed all at once: everything from one scan of the files lives in one arena. */
#ifndef NETDRA_ARENA_H
#define NETDRA_ARENA_H

#include <stddef.h>

struct arena {
  struct arena_block *blocks; /* the newest first; NULL in an empty arena */
};

/* Zeroed memory, aligned for any type. Ends the process when memory runs out. */
void *arena_alloc(struct arena *arena, size_t size);

/* A copy, terminated by a NUL. */
char *arena_copy(struct arena *arena, const char *bytes, size_t length);

/* printf into the arena. */
char *arena_format(struct arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3), nonnull(2), returns_nonnull));

/* Frees everything; the arena is empty then and can be used again. */
void arena_free(struct arena *arena);

#endif
