#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "commands.h"

static const char place_holder[] = "{eal-args}";

static size_t count_of(char *const *items) {
  size_t count = 0;
  while (items[count] != NULL) count++;
  return count;
}

/* The words of the program, with the DPDK arguments in place of `{eal-args}`. */
static char **expand(struct arena *arena, const struct options *options, const struct catalog *catalog) {
  char *none[] = {NULL};
  char **eal_args = none;
  size_t uses = 0, count = 0;
  for (char **word = options->program; *word != NULL; word++) uses += strcmp(*word, place_holder) == 0;
  if (uses > 0) eal_args = build_eal_args(arena, options, catalog);
  size_t room = count_of(options->program) + uses * count_of(eal_args) + 1;
  char **words = arena_alloc(arena, room * sizeof *words);
  for (char **word = options->program; *word != NULL; word++) {
    if (strcmp(*word, place_holder) != 0) {
      words[count++] = *word;
      continue;
    }
    for (char **argument = eal_args; *argument != NULL; argument++) words[count++] = *argument;
  }
  return words;
}

/* Executes the program: for images without a shell, which could not use the output of `env` and `eal-args`. */
enum exit_code run_exec(struct arena *arena, const struct options *options) {
  struct catalog catalog;
  if (options->program == NULL || *options->program == NULL) die(exit_usage, "exec needs -- and a program, see --help");
  if (options->waits) wait_or_die(options);
  load_or_die(arena, options, &catalog);
  enum exit_code code = report(&catalog);
  if (code != exit_ok) return code;
  char **words = expand(arena, options, &catalog);
  for (char **text = build_env(arena, options, &catalog); *text != NULL; text++) {
    if (putenv(*text) != 0) die(exit_system, "out of memory");
  }
  execvp(words[0], words);
  die(exit_system, "%s cannot be started: %s", words[0], strerror(errno));
}
