#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "json.h"
#include "utf8.h"

enum { max_depth = 64 };

struct reader {
  struct arena *arena;
  struct json_source *source;
  struct problem *problem;
};

static struct json *read_value(struct reader *reader, int depth);

/* The byte at the read position; -1 at the end. */
static int peek(const struct reader *reader) {
  const struct json_source *source = reader->source;
  return source->at < source->length ? (unsigned char)source->text[source->at] : -1;
}

static void skip_blanks(struct reader *reader) {
  for (;;) {
    int byte = peek(reader);
    if (byte != ' ' && byte != '\t' && byte != '\r' && byte != '\n') return;
    reader->source->at++;
  }
}

static void *refuse(struct reader *reader, const char *what) {
  int byte = peek(reader);
  size_t at = reader->source->at;
  if (byte < 0) {
    fail(reader->problem, exit_malformed, "no JSON: %s, but the text ends at offset %zu", what, at);
  } else if (byte > ' ' && byte < 127) {
    fail(reader->problem, exit_malformed, "no JSON: %s, but '%c' at offset %zu", what, byte, at);
  } else {
    fail(reader->problem, exit_malformed, "no JSON: %s, but byte 0x%02x at offset %zu", what, (unsigned)byte, at);
  }
  return NULL;
}

/* Consumes one byte if it is the wanted one. */
static bool accept(struct reader *reader, char wanted) {
  if (peek(reader) != (unsigned char)wanted) return false;
  reader->source->at++;
  return true;
}

static size_t skip_digits(struct reader *reader) {
  size_t count = 0;
  for (; peek(reader) >= '0' && peek(reader) <= '9'; count++) reader->source->at++;
  return count;
}

static struct json *read_number(struct reader *reader) {
  struct json_source *source = reader->source;
  size_t start = source->at;
  accept(reader, '-');
  if (!accept(reader, '0') && skip_digits(reader) == 0) return refuse(reader, "a digit expected");
  if (accept(reader, '.') && skip_digits(reader) == 0) return refuse(reader, "a digit expected");
  if (accept(reader, 'e') || accept(reader, 'E')) {
    if (!accept(reader, '+')) accept(reader, '-');
    if (skip_digits(reader) == 0) return refuse(reader, "a digit expected");
  }
  const char *text = arena_copy(reader->arena, source->text + start, source->at - start);
  return json_new(reader->arena, json_number, NULL, text);
}

/* The four hexadecimal digits of an escape; -1 if they are something else. */
static int32_t read_hex4(struct reader *reader) {
  int32_t value = 0;
  for (int index = 0; index < 4; index++) {
    int byte = peek(reader);
    int digit = byte >= '0' && byte <= '9'   ? byte - '0'
                : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
                : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
                                             : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
    reader->source->at++;
  }
  return value;
}

/* The character after `\u`. Half of a surrogate pair becomes U+FFFD, as in Go. */
static bool read_unicode_escape(struct reader *reader, uint32_t *character) {
  int32_t unit = read_hex4(reader);
  if (unit < 0) return refuse(reader, "four hexadecimal digits expected") != NULL;
  // A NUL would truncate the text for every consumer.
  if (unit == 0) return refuse(reader, "a string without \\u0000 expected") != NULL;
  *character = (uint32_t)unit;
  if (unit < 0xd800 || unit > 0xdfff) return true;
  *character = 0xfffd;
  struct json_source *source = reader->source;
  if (unit > 0xdbff || source->length - source->at < 2 || memcmp(source->text + source->at, "\\u", 2) != 0) return true;
  size_t before = source->at;
  source->at += 2;
  int32_t low = read_hex4(reader);
  if (low >= 0xdc00 && low <= 0xdfff) {
    *character = 0x10000 + (((uint32_t)unit - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
  } else {
    source->at = before;
  }
  return true;
}

/* Decodes the part after a backslash as UTF-8 to `out`. */
static bool read_escape(struct reader *reader, char **out) {
  static const char names[] = "\"\\/bfnrt";
  static const char meanings[] = "\"\\/\b\f\n\r\t";
  if (accept(reader, 'u')) {
    uint32_t character = 0;
    if (!read_unicode_escape(reader, &character)) return false;
    *out += utf8_encode(character, *out);
    return true;
  }
  int byte = peek(reader);
  const char *name = byte <= 0 ? NULL : strchr(names, byte);
  if (name == NULL) return refuse(reader, "an escape expected") != NULL;
  *(*out)++ = meanings[name - names];
  reader->source->at++;
  return true;
}

/* The text of a string whose opening quote was consumed. Decoded text is never longer than the escaped text. */
static const char *read_string(struct reader *reader) {
  struct json_source *source = reader->source;
  size_t end = source->at;
  while (end < source->length && source->text[end] != '"') end += source->text[end] == '\\' ? 2 : 1;
  if (end >= source->length) {
    source->at = source->length;
    return refuse(reader, "the end of a string expected");
  }
  char *text = arena_alloc(reader->arena, end - source->at + 1);
  char *out = text;
  while (!accept(reader, '"')) {
    if (accept(reader, '\\')) {
      if (!read_escape(reader, &out)) return NULL;
      continue;
    }
    size_t width = utf8_width(source->text + source->at, source->length - source->at);
    if (width == 0) return refuse(reader, "UTF-8 expected");
    if (peek(reader) < 0x20) return refuse(reader, "no control character expected in a string");
    memcpy(out, source->text + source->at, width);
    out += width;
    source->at += width;
  }
  *out = '\0';
  return text;
}

static struct json *read_object(struct reader *reader, int depth) {
  struct json *object = json_new(reader->arena, json_object, NULL, NULL);
  struct json **end = &object->first;
  skip_blanks(reader);
  if (accept(reader, '}')) return object;
  for (;;) {
    skip_blanks(reader);
    if (!accept(reader, '"')) return refuse(reader, "the name of a member expected");
    const char *key = read_string(reader);
    if (key == NULL) return NULL;
    skip_blanks(reader);
    if (!accept(reader, ':')) return refuse(reader, "':' expected");
    struct json *member = read_value(reader, depth);
    if (member == NULL) return NULL;
    member->key = key;
    *end = member;
    end = &member->next;
    skip_blanks(reader);
    if (accept(reader, '}')) return object;
    if (!accept(reader, ',')) return refuse(reader, "',' or '}' expected");
  }
}

static struct json *read_array(struct reader *reader, int depth) {
  struct json *array = json_new(reader->arena, json_array, NULL, NULL);
  struct json **end = &array->first;
  skip_blanks(reader);
  if (accept(reader, ']')) return array;
  for (;;) {
    struct json *element = read_value(reader, depth);
    if (element == NULL) return NULL;
    *end = element;
    end = &element->next;
    skip_blanks(reader);
    if (accept(reader, ']')) return array;
    if (!accept(reader, ',')) return refuse(reader, "',' or ']' expected");
  }
}

static struct json *read_word(struct reader *reader) {
  static const struct {
    const char *word;
    enum json_type type;
  } words[] = {{"true", json_bool}, {"false", json_bool}, {"null", json_null}};
  struct json_source *source = reader->source;
  for (size_t index = 0; index < sizeof words / sizeof *words; index++) {
    size_t length = strlen(words[index].word);
    if (source->length - source->at < length) continue;
    if (memcmp(source->text + source->at, words[index].word, length) != 0) continue;
    source->at += length;
    return json_new(reader->arena, words[index].type, NULL, words[index].word);
  }
  return refuse(reader, "a value expected");
}

static struct json *read_value(struct reader *reader, int depth) {
  skip_blanks(reader);
  // Each level uses a stack frame.
  if (depth > max_depth) return refuse(reader, "no deeper nesting expected");
  if (accept(reader, '{')) return read_object(reader, depth + 1);
  if (accept(reader, '[')) return read_array(reader, depth + 1);
  if (accept(reader, '"')) {
    const char *text = read_string(reader);
    return text == NULL ? NULL : json_new(reader->arena, json_string, NULL, text);
  }
  int byte = peek(reader);
  return byte == '-' || (byte >= '0' && byte <= '9') ? read_number(reader) : read_word(reader);
}

struct json *json_read(struct arena *arena, struct json_source *source, struct problem *problem) {
  struct reader reader = {arena, source, problem};
  skip_blanks(&reader);
  return source->at == source->length ? NULL : read_value(&reader, 1);
}
