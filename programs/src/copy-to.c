#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "commands.h"

static bool copy_bytes(int from, int to) {
  char buffer[16384];
  for (;;) {
    ssize_t count = read(from, buffer, sizeof buffer);
    if (count <= 0) return count == 0;
    for (ssize_t done = 0; done < count;) {
      ssize_t written = write(to, buffer + done, (size_t)(count - done));
      if (written < 0) return false;
      done += written;
    }
  }
}

/* A container of the pod may be starting the program meanwhile, so the name always refers to a complete file. */
static bool install(struct arena *arena, const char *target) {
  /* In a volume there may be files of containers that were killed: their process ids were the same. */
  char *temporary = arena_format(arena, "%s.XXXXXX", target);
  int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  int to = from < 0 ? -1 : mkostemp(temporary, O_CLOEXEC);
  bool ok = to >= 0 && copy_bytes(from, to) && fchmod(to, 0755) == 0;
  int reason = errno;
  if (from >= 0) close(from);
  if (to >= 0 && close(to) != 0 && ok) {
    ok = false;
    reason = errno;
  }
  if (ok && rename(temporary, target) == 0) return true;
  if (ok) reason = errno;
  if (to >= 0) unlink(temporary);
  errno = reason;
  return false;
}

/* For an init container: the tool's image contains no other program that could copy. */
enum exit_code run_copy_to(struct arena *arena, const struct options *options) {
  struct stat status;
  if (options->count != 1) die(exit_usage, "copy-to takes a file or a folder, see --help");
  const char *target = options->arguments[0];
  if (stat(target, &status) == 0 && S_ISDIR(status.st_mode)) {
    target = arena_format(arena, "%s/netdra-metadata", target);
  }
  if (!install(arena, target)) die(exit_system, "%s cannot be written: %s", target, strerror(errno));
  return exit_ok;
}
