#include "stable-file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Even with a writer that never pauses two reads agree after a few tries; this many fail only if someone interferes. */
enum { max_attempts = 1000 };

struct content {
  char *bytes;
  size_t length, size;
};

static void pause_ns(long nanoseconds) {
  struct timespec time = {nanoseconds / 1000000000, nanoseconds % 1000000000};
  nanosleep(&time, NULL);
}

/* Reads the whole file from its start, into memory that is reused for the next read. */
static bool read_once(int descriptor, struct content *content, const char *path, struct problem *problem) {
  for (content->length = 0;;) {
    if (content->size - content->length < 4096) {
      content->size += 16384;
      content->bytes = realloc(content->bytes, content->size);
      if (content->bytes == NULL) die(exit_system, "out of memory");
    }
    // One byte is left for the NUL.
    size_t room = content->size - content->length - 1;
    ssize_t count = pread(descriptor, content->bytes + content->length, room, (off_t)content->length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail(problem, exit_system, "%s cannot be read: %s", path, strerror(errno));
    if (count == 0) return true;
    content->length += (size_t)count;
    if (content->length > max_file_bytes) {
      return fail(problem, exit_malformed, "%s is no metadata: larger than %d bytes", path, max_file_bytes);
    }
  }
}

static bool is_same(const struct content *a, const struct content *b) {
  return a->length == b->length && memcmp(a->bytes, b->bytes, a->length) == 0;
}

static bool read_twice(int descriptor, struct content *now, const char *path, struct problem *problem) {
  struct content before = {0};
  bool ok = read_once(descriptor, &before, path, problem);
  for (int attempt = 1; ok; attempt++) {
    // Gives a writer that was interrupted during its pwrite time to finish it.
    pause_ns(100000);
    ok = read_once(descriptor, now, path, problem);
    if (!ok || is_same(now, &before)) break;
    if (attempt == max_attempts) {
      ok = fail(problem, exit_malformed, "%s changed during each of %d reads", path, max_attempts);
    }
    struct content swap = before;
    before = *now;
    *now = swap;
  }
  free(before.bytes);
  return ok;
}

static int open_regular(const char *path, struct problem *problem) {
  struct stat status;
  // Without O_NONBLOCK, opening a pipe of that name would block.
  int descriptor = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    fail(problem, errno == ENOENT ? exit_not_found : exit_system, "%s cannot be opened: %s", path, strerror(errno));
    return -1;
  }
  if (fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) return descriptor;
  close(descriptor);
  fail(problem, exit_malformed, "%s is no metadata: it is not a regular file", path);
  return -1;
}

char *read_stable_file(struct arena *arena, const char *path, size_t *length, struct problem *problem) {
  struct content content = {0};
  char *text = NULL;
  int descriptor = open_regular(path, problem);
  if (descriptor < 0) return NULL;
  if (read_twice(descriptor, &content, path, problem)) {
    text = arena_copy(arena, content.bytes, content.length);
    *length = content.length;
  }
  free(content.bytes);
  close(descriptor);
  return text;
}
