/*
 * JSON values: a reader for streams of several of them (RFC 8259 each, blanks between), and a printer.
 * Numbers stay as they were written, so that 64-bit integers are preserved.
 */
#ifndef NETDRA_JSON_H
#define NETDRA_JSON_H

#include <stddef.h>
#include <stdio.h>

#include "arena.h"
#include "problem.h"

enum json_type { json_null, json_bool, json_number, json_string, json_array, json_object };

struct json {
  enum json_type type;
  const char *key;           /* name within the object it is in, else NULL */
  const char *text;          /* string: the decoded text; number, true, false, null: as written; else NULL */
  struct json *first, *next; /* the first child; the next sibling */
};

/* A text that is read value by value. */
struct json_source {
  const char *text;
  size_t length;
  size_t at; /* the read position */
};

/*
 * The next value. NULL at the end of the text, with problem->code still exit_ok, and for anything that is not JSON,
 * with exit_malformed and the offset: nesting deeper than 64, text that is not UTF-8, and a NUL in a string included.
 */
struct json *json_read(struct arena *arena, struct json_source *source, struct problem *problem);

/* The member of that name, the last one if there are several; NULL if there is none or `value` is not an object. */
const struct json *json_member(const struct json *value, const char *key);

/* The element at `index` from 0; NULL if there is none or `value` is not an array. */
const struct json *json_element(const struct json *value, size_t index);

/* The text of a string, else NULL. A NULL value is fine. */
const char *json_string_of(const struct json *value);

/* The text of a string, number or boolean, else NULL. A NULL value is fine. */
const char *json_scalar_of(const struct json *value);

/* A value with nothing in it yet. */
struct json *json_new(struct arena *arena, enum json_type type, const char *key, const char *text);

/* With two blanks a level and a line feed at the end; a string, number, boolean or null as its bare text. */
void json_print(FILE *out, const struct json *value);

/* "an object", "a string", …: for messages. */
const char *json_type_name(const struct json *value);

#endif
