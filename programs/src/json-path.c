#include "json-path.h"

#include <stdint.h>
#include <string.h>

static bool is_name_character(char character) {
  return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
         (character >= '0' && character <= '9') || character == '_' || character == '-';
}

/* The text between quotes; `*at` is after the opening quote and moves past the closing one. NULL: there is none. */
static const char *read_quoted(struct arena *arena, const char **at, char quote) {
  char *name = arena_alloc(arena, strlen(*at) + 1);
  char *out = name;
  const char *in = *at;
  for (; *in != '\0' && *in != quote; in++) {
    if (*in == '\\' && in[1] != '\0') in++;
    *out++ = *in;
  }
  *at = in + 1;
  return *in == quote ? name : NULL;
}

/* The part after `[`, up to and including `]`. */
static bool read_bracket(struct arena *arena, const char **at, struct json_path *step) {
  const char *in = *at;
  if (*in == '\'' || *in == '"') {
    char quote = *in++;
    step->key = read_quoted(arena, &in, quote);
    if (step->key == NULL) return false;
  } else if (*in == '*') {
    step->every = true;
    in++;
  } else {
    if (*in < '0' || *in > '9') return false;
    for (; *in >= '0' && *in <= '9'; in++) {
      if (step->index > SIZE_MAX / 10 - 1) return false;
      step->index = step->index * 10 + (size_t)(*in - '0');
    }
  }
  *at = in + 1;
  return *in == ']';
}

static bool read_step(struct arena *arena, const char **at, struct json_path *step) {
  const char *in = *at + 1;
  if (**at == '[') {
    *at = in;
    return read_bracket(arena, at, step);
  }
  if (**at != '.') return false;
  const char *end = in;
  while (is_name_character(*end)) end++;
  step->key = arena_copy(arena, in, (size_t)(end - in));
  *at = end;
  return end > in;
}

bool json_path_parse(struct arena *arena, const char *text, struct json_path **path, struct problem *problem) {
  const char *at = text[0] == '$' ? text + 1 : text;
  struct json_path **end = path;
  *path = NULL;
  if (strcmp(at, ".") == 0) return true;
  while (*at != '\0') {
    struct json_path *step = arena_alloc(arena, sizeof *step);
    const char *start = at;
    if (!read_step(arena, &at, step)) {
      return fail(problem, exit_usage, "JSONPath %s: .name, ['name'], [3] or [*] expected at \"%s\"", text, start);
    }
    *end = step;
    end = &step->next;
  }
  return true;
}

size_t json_path_visit(const struct json *value, const struct json_path *path,
                       void (*visit)(const struct json *value, void *context), void *context) {
  if (value == NULL) return 0;
  if (path == NULL) {
    visit(value, context);
    return 1;
  }
  if (!path->every) {
    const struct json *child = path->key != NULL ? json_member(value, path->key) : json_element(value, path->index);
    return json_path_visit(child, path->next, visit, context);
  }
  size_t count = 0;
  for (const struct json *child = value->first; child != NULL; child = child->next) {
    count += json_path_visit(child, path->next, visit, context);
  }
  return count;
}
