#include "arena.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "problem.h"

struct arena_block {
  struct arena_block *next;
  size_t used, size;
  _Alignas(max_align_t) unsigned char bytes[];
};

#ifdef __SANITIZE_ADDRESS__
/* Each allocation gets a block of exactly its size, so that an overrun by one byte is detected. */
enum { block_size = 0, alignment = 1 };
#else
enum { block_size = 16 * 1024, alignment = _Alignof(max_align_t) };
#endif

static struct arena_block *add_block(struct arena *arena, size_t size) {
  struct arena_block *block = size > SIZE_MAX - sizeof *block ? NULL : calloc(1, sizeof *block + size);
  if (block == NULL) die(exit_system, "out of memory");
  block->next = arena->blocks;
  block->size = size;
  arena->blocks = block;
  return block;
}

void *arena_alloc(struct arena *arena, size_t size) {
  if (size > SIZE_MAX - alignment) die(exit_system, "out of memory");
  size = (size + alignment - 1) / alignment * alignment;
  struct arena_block *block = arena->blocks;
  if (block == NULL || block->size - block->used < size) {
    block = add_block(arena, size > block_size ? size : block_size);
  }
  void *result = block->bytes + block->used;
  block->used += size;
  return result;
}

char *arena_copy(struct arena *arena, const char *bytes, size_t length) {
  char *copy = arena_alloc(arena, length + 1);
  memcpy(copy, bytes, length);
  return copy;
}

char *arena_format(struct arena *arena, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int length = vsnprintf(NULL, 0, format, arguments);
  va_end(arguments);
  if (length < 0) die(exit_system, "text cannot be put together");
  char *text = arena_alloc(arena, (size_t)length + 1);
  va_start(arguments, format);
  vsnprintf(text, (size_t)length + 1, format, arguments);
  va_end(arguments);
  return text;
}

void arena_free(struct arena *arena) {
  struct arena_block *block = arena->blocks;
  while (block != NULL) {
    struct arena_block *next = block->next;
    free(block);
    block = next;
  }
  arena->blocks = NULL;
}
