#include "json.h"

#include <string.h>

struct json *json_new(struct arena *arena, enum json_type type, const char *key, const char *text) {
  struct json *value = arena_alloc(arena, sizeof *value);
  *value = (struct json){.type = type, .key = key, .text = text};
  return value;
}

const struct json *json_member(const struct json *value, const char *key) {
  const struct json *found = NULL;
  if (value == NULL || value->type != json_object) return NULL;
  for (const struct json *member = value->first; member != NULL; member = member->next) {
    if (strcmp(member->key, key) == 0) found = member;
  }
  return found;
}

const struct json *json_element(const struct json *value, size_t index) {
  if (value == NULL || value->type != json_array) return NULL;
  const struct json *element = value->first;
  while (element != NULL && index-- > 0) element = element->next;
  return element;
}

const char *json_string_of(const struct json *value) {
  return value != NULL && value->type == json_string ? value->text : NULL;
}

const char *json_scalar_of(const struct json *value) {
  int is_scalar = value != NULL && (value->type == json_string || value->type == json_number || value->type == json_bool);
  return is_scalar ? value->text : NULL;
}

const char *json_type_name(const struct json *value) {
  static const char *const names[] = {"null", "a boolean", "a number", "a string", "a list", "an object"};
  return value == NULL ? "nothing" : names[value->type];
}

static void print_string(FILE *out, const char *text) {
  fputc('"', out);
  for (; *text != '\0'; text++) {
    unsigned char byte = (unsigned char)*text;
    if (byte == '"' || byte == '\\') {
      fprintf(out, "\\%c", byte);
    } else if (byte < 0x20 || byte == 0x7f) {
      fprintf(out, "\\u%04x", byte);
    } else {
      fputc(byte, out);
    }
  }
  fputc('"', out);
}

static void print_indented(FILE *out, const struct json *value, int level) {
  if (value->type == json_string) {
    print_string(out, value->text);
    return;
  }
  if (value->type != json_array && value->type != json_object) {
    fputs(value->text, out);
    return;
  }
  const char *brackets = value->type == json_array ? "[]" : "{}";
  fputc(brackets[0], out);
  for (const struct json *child = value->first; child != NULL; child = child->next) {
    fprintf(out, "\n%*s", 2 * (level + 1), "");
    if (value->type == json_object) {
      print_string(out, child->key);
      fputs(": ", out);
    }
    print_indented(out, child, level + 1);
    if (child->next != NULL) fputc(',', out);
  }
  if (value->first != NULL) fprintf(out, "\n%*s", 2 * level, "");
  fputc(brackets[1], out);
}

void json_print(FILE *out, const struct json *value) {
  if (value->type == json_string) {
    fputs(value->text, out);
  } else {
    print_indented(out, value, 0);
  }
  fputc('\n', out);
}
