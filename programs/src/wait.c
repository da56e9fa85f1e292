#include <string.h>

#include "clock.h"
#include "commands.h"

/* A container seldom waits: its files exist before it starts. It waits for changes. */
enum { poll_ms = 50 };

/* What is still missing; exit_ok if nothing is. Any failure except a file that does not exist yet ends the process. */
static struct problem look(struct arena *arena, const struct options *options) {
  struct catalog catalog;
  struct problem missing = {0};
  load_or_die(arena, options, &catalog);
  for (const struct complaint *each = catalog.complaints; each != NULL; each = each->next) {
    if (each->problem.code != exit_not_found) die(each->problem.code, "%s", each->problem.text);
    missing = each->problem;
  }
  for (const struct request *each = catalog.requests; each != NULL && missing.code == exit_ok; each = each->next) {
    if (each->generation == 0 && options->generation > 1) {
      die(exit_usage, "%s/%s is in a layout without generations", each->claim, each->name);
    }
    if (each->generation != 0 && each->generation < options->generation) {
      fail(&missing, exit_not_found, "%s/%s is at generation %lld", each->claim, each->name, each->generation);
    }
  }
  return missing;
}

void wait_or_die(const struct options *options) {
  struct arena arena = {NULL};
  long start = now_ms();
  for (;;) {
    struct problem missing = look(&arena, options);
    arena_free(&arena);
    if (missing.code == exit_ok) return;
    long left = options->timeout_ms - (now_ms() - start);
    if (left <= 0) {
      die(exit_timeout, "generation %lld not seen within %ld.%03ld s: %s", options->generation,
          options->timeout_ms / 1000, options->timeout_ms % 1000, missing.text);
    }
    sleep_ms(left < poll_ms ? left : poll_ms);
  }
}

enum exit_code run_wait(struct arena *arena, const struct options *options) {
  (void)arena;
  wait_or_die(options);
  return exit_ok;
}
