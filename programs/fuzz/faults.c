/*
 * Lets system calls fail: with NETDRA_FAULT=CALL:ERRNO:FIRST-LAST in the environment, the calls of that name from the FIRST to
 * the LAST one return that error. Linked with `--wrap` for each of them.
 */
#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_to_fail(const char *name, unsigned count) {
  const char *fault = getenv("NETDRA_FAULT");
  char call[32];
  int reason;
  unsigned first, last;
  if (fault == NULL || sscanf(fault, "%31[a-z0-9_]:%d:%u-%u", call, &reason, &first, &last) != 4) return false;
  if (strcmp(call, name) != 0 || count < first || count > last) return false;
  errno = reason;
  return true;
}

#define WRAP(type, name, parameters, arguments)          \
  type __real_##name parameters;                         \
  type __wrap_##name parameters;                         \
  type __wrap_##name parameters {                        \
    static unsigned count;                               \
    if (is_to_fail(#name, ++count)) return -1;           \
    return __real_##name arguments;                      \
  }

WRAP(int, open, (const char *path, int flags, mode_t mode), (path, flags, mode))
WRAP(int, openat, (int directory, const char *path, int flags, mode_t mode), (directory, path, flags, mode))
WRAP(ssize_t, read, (int file, void *bytes, size_t size), (file, bytes, size))
WRAP(ssize_t, write, (int file, const void *bytes, size_t size), (file, bytes, size))
WRAP(int, fstat, (int file, struct stat *status), (file, status))
WRAP(int, stat, (const char *path, struct stat *status), (path, status))
WRAP(int, poll, (struct pollfd *files, nfds_t count_of_files, int timeout), (files, count_of_files, timeout))
WRAP(int, inotify_init1, (int flags), (flags))
WRAP(int, inotify_add_watch, (int file, const char *path, uint32_t mask), (file, path, mask))
WRAP(int, renameat, (int from_dir, const char *from, int to_dir, const char *to), (from_dir, from, to_dir, to))
