#include <stdio.h>

#include "commands.h"

enum exit_code report(const struct catalog *catalog) {
  for (const struct complaint *each = catalog->complaints; each != NULL; each = each->next) {
    complain("%s", each->problem.text);
  }
  return catalog->complaints == NULL ? exit_ok : catalog->complaints->problem.code;
}

void load_or_die(struct arena *arena, const struct options *options, struct catalog *catalog) {
  struct reference *references = arena_alloc(arena, (options->count + 1) * sizeof *references);
  struct problem problem = {0};
  for (size_t index = 0; index < options->count; index++) {
    if (!reference_parse(arena, options->arguments[index], &references[index], &problem)) {
      die(problem.code, "%s", problem.text);
    }
  }
  catalog_load(arena, &options->place, references, options->count, catalog);
}
