#include "options.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"

/* The commands that accept each option; NULL: all commands. */
static const struct {
  const char *name, *commands;
  bool has_value;
} known[] = {
    {"--root", NULL, true},
    {"--path", NULL, true},
    {"--layout", NULL, true},
    {"--no-headers", "list", false},
    {"--prefix", "env exec", true},
    {"--devargs", "eal-args exec", true},
    {"--flag", "eal-args exec", true},
    {"--af-packet", "eal-args exec", false},
    {"--lcores", "eal-args exec", false},
    {"--file-prefix", "eal-args exec", false},
    {"--generation", "wait exec", true},
    {"--timeout", "wait exec", true},
};
enum { known_count = sizeof known / sizeof *known };

static bool parse_generation(const char *text, long long *generation) {
  char *end;
  errno = 0;
  *generation = strtoll(text, &end, 10);
  return errno == 0 && *end == '\0' && *text >= '0' && *text <= '9' && *generation > 0;
}

/* A shell splits the output at blanks, and expands patterns, too. */
static bool is_plain_word(const char *text) {
  return *text != '\0' && strpbrk(text, " \t\r\n'\"\\*?[]$`;&|<>(){}~#!") == NULL;
}

static bool is_variable_name(const char *text) {
  if (*text >= '0' && *text <= '9') return false;
  return *text != '\0' &&
         text[strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_")] == '\0';
}

static bool set_option(struct options *options, const char *name, const char *value, struct problem *problem) {
  bool ok = true;
  if (strcmp(name, "--root") == 0) {
    options->place.root = value;
  } else if (strcmp(name, "--path") == 0) {
    options->place.path = value;
  } else if (strcmp(name, "--layout") == 0) {
    return layout_parse(value, &options->place.layout, problem);
  } else if (strcmp(name, "--no-headers") == 0) {
    options->no_headers = true;
  } else if (strcmp(name, "--prefix") == 0) {
    options->prefix = value;
    ok = is_variable_name(value);
  } else if (strcmp(name, "--devargs") == 0) {
    options->devargs = value;
    ok = is_plain_word(value);
  } else if (strcmp(name, "--flag") == 0) {
    options->flag = value;
    ok = is_plain_word(value) && value[0] == '-';
  } else if (strcmp(name, "--af-packet") == 0) {
    options->af_packet = true;
  } else if (strcmp(name, "--lcores") == 0) {
    options->lcores = true;
  } else if (strcmp(name, "--file-prefix") == 0) {
    options->file_prefix = true;
  } else if (strcmp(name, "--generation") == 0) {
    options->waits = true;
    ok = parse_generation(value, &options->generation);
  } else {
    options->waits = true;
    ok = parse_seconds(value, &options->timeout_ms);
  }
  return ok ? true : fail(problem, exit_usage, "%s %s: not a value that it can have, see --help", name, value);
}

/* Takes `--name VALUE` or `--name=VALUE` at `*words`, which points to the last word taken afterwards. */
static bool take_option(char ***words, const char **used, struct options *options, struct problem *problem) {
  const char *word = **words;
  size_t length = strcspn(word, "=");
  for (int index = 0; index < known_count; index++) {
    if (strncmp(known[index].name, word, length) != 0 || known[index].name[length] != '\0') continue;
    const char *value = word[length] == '=' ? word + length + 1 : NULL;
    if (!known[index].has_value && value != NULL) return fail(problem, exit_usage, "%s takes no value", known[index].name);
    if (known[index].has_value && value == NULL) value = *++*words;
    if (known[index].has_value && value == NULL) return fail(problem, exit_usage, "%s needs a value", known[index].name);
    used[index] = known[index].name;
    return set_option(options, known[index].name, value, problem);
  }
  return fail(problem, exit_usage, "unknown option %s, see --help", word);
}

/* Whether `command` is one of the words in `commands`. */
static bool has_word(const char *commands, const char *command) {
  size_t length = strlen(command);
  const char *found = strstr(commands, command);
  return found != NULL && (found == commands || found[-1] == ' ') && (found[length] == ' ' || found[length] == '\0');
}

static bool check_together(const struct options *options, const char **used, struct problem *problem) {
  const char *command = options->command;
  for (int index = 0; index < known_count && command != NULL; index++) {
    if (used[index] != NULL && known[index].commands != NULL && !has_word(known[index].commands, command)) {
      return fail(problem, exit_usage, "%s does not go with %s, see --help", used[index], command);
    }
  }
  if (options->place.path != NULL && options->place.root[0] != '\0') {
    return fail(problem, exit_usage, "--root and --path do not go together: --root is for the default paths");
  }
  return true;
}

bool options_parse(struct arena *arena, char **words, struct options *options, struct problem *problem) {
  const char *used[known_count] = {NULL};
  size_t word_count = 0;
  while (words[word_count] != NULL) word_count++;
  *options = (struct options){.place = {.root = ""}, .flag = "-a", .generation = 1};
  options->arguments = arena_alloc(arena, (word_count + 1) * sizeof *options->arguments);
  for (; *words != NULL; words++) {
    if (strcmp(*words, "--") == 0) {
      options->program = words + 1;
      break;
    }
    if (strcmp(*words, "--help") == 0 || strcmp(*words, "-h") == 0) {
      options->command = "help";
      return true;
    }
    if ((*words)[0] == '-' && (*words)[1] != '\0') {
      if (!take_option(&words, used, options, problem)) return false;
    } else if (options->command == NULL) {
      options->command = *words;
    } else {
      options->arguments[options->count++] = *words;
    }
  }
  return check_together(options, used, problem);
}
