/*
 * netdra-metadata: shows a container the devices of its resource claims, from the files of KEP-5304. One static
 * program without other files, so that it runs in any image.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"

#ifndef VERSION
#define VERSION "unknown"
#endif

const char program_name[] = "netdra-metadata";

typedef enum exit_code command(struct arena *arena, const struct options *options);

static enum exit_code run_help(struct arena *arena, const struct options *options) {
  (void)arena;
  (void)options;
  fputs(help_text, stdout);
  return exit_ok;
}

static enum exit_code run_version(struct arena *arena, const struct options *options) {
  (void)arena;
  (void)options;
  puts(VERSION);
  return exit_ok;
}

static command *find_command(const struct options *options) {
  static const struct {
    const char *name;
    command *run;
  } commands[] = {
      {"list", run_list},   {"get", run_get},   {"env", run_env},         {"eal-args", run_eal_args},
      {"wait", run_wait},   {"exec", run_exec}, {"copy-to", run_copy_to}, {"help", run_help},
      {"version", run_version},
  };
  if (options->command == NULL) die(exit_usage, "a command expected, see --help");
  if (options->program != NULL && strcmp(options->command, "exec") != 0) die(exit_usage, "only exec takes --, see --help");
  for (size_t index = 0; index < sizeof commands / sizeof *commands; index++) {
    if (strcmp(commands[index].name, options->command) == 0) return commands[index].run;
  }
  die(exit_usage, "unknown command %s, see --help", options->command);
}

int main(int argc, char **argv) {
  struct arena arena = {NULL};
  struct options options;
  struct problem problem = {0};
  if (argc < 2) {
    fputs(help_text, stderr);
    return exit_usage;
  }
  if (!options_parse(&arena, argv + 1, &options, &problem)) die(problem.code, "%s", problem.text);
  enum exit_code code = find_command(&options)(&arena, &options);
  // Lost output is a failure: a full disk would leave half of the assignments.
  if (fflush(stdout) != 0 || ferror(stdout)) die(exit_system, "output cannot be written: %s", strerror(errno));
  arena_free(&arena);
  return (int)code;
}
