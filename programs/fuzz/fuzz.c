/*
 * Feeds the parsers with what no writer writes: `fuzz ROUNDS SEED FILE...`. Each round takes one of the files, changes
 * it at random places or replaces it by random bytes, and parses it as a document, as the commands of netdra-metadata do, and
 * as netdra-gate's input: a container's state, a gate, a timeout. It is built with sanitizers, which end it at the first wrong
 * access. Prints how many texts were documents and how many were not, how many were states and how many gates; the round
 * that went wrong is on stderr when a sanitizer speaks, and the same SEED makes the same rounds.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "device.h"
#include "gate-file.h"
#include "json-path.h"
#include "printable.h"
#include "stable-file.h"

const char program_name[] = "fuzz";

enum { max_seeds = 64, max_bytes = 64 * 1024 };

struct text {
  char *bytes;
  size_t length;
};

static uint64_t state;

/* splitmix64: good enough, and the same everywhere. */
static uint64_t random_bits(void) {
  uint64_t bits = state += 0x9e3779b97f4a7c15u;
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9u;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111ebu;
  return bits ^ bits >> 31;
}

static size_t below(size_t limit) { return limit == 0 ? 0 : (size_t)(random_bits() % limit); }

/* Something that means something to a parser, at a random place. */
static void insert_token(struct text *text) {
  static const char *const tokens[] = {
      "{", "}", "[", "]", "\"", ":", ",", "null", "\\u0000", "\\ud800", "\\udc00x", "1e999", "-", "\\", "[[[[[[[[[[[[",
      "9", "1000000.", ".999999", "netdra-gate 1\n", "served ", "waiting a b\n", "ended ", "\"annotations\":{", "\"io.kubernetes.cri.sandbox-id\":\"a\"", "\"pid\":",
      "\"apiVersion\":\"metadata.resource.k8s.io/v9\",", "\"claims\":[", "\"requests\":[{\"name\":\"a/b\"}]", "\xf0\x9f",
  };
  const char *token = tokens[below(sizeof tokens / sizeof *tokens)];
  size_t length = strlen(token), at = below(text->length + 1);
  if (text->length + length > max_bytes) return;
  memmove(text->bytes + at + length, text->bytes + at, text->length - at);
  memcpy(text->bytes + at, token, length);
  text->length += length;
}

static void change(struct text *text) {
  size_t at = below(text->length);
  size_t length = below(text->length - at + 1) % 64;
  switch (below(6)) {
    case 0: /* another byte */
      if (text->length > 0) text->bytes[at] = (char)random_bits();
      break;
    case 1: /* cut off */
      text->length = at;
      break;
    case 2: /* a piece is missing */
      memmove(text->bytes + at, text->bytes + at + length, text->length - at - length);
      text->length -= length;
      break;
    case 3: /* a piece from elsewhere, as in a torn read */
      memmove(text->bytes + below(text->length - length + 1), text->bytes + at, length);
      break;
    default:
      insert_token(text);
  }
}

static void make_text(struct text *text, const struct text *seeds, size_t seed_count) {
  const struct text *seed = &seeds[below(seed_count)];
  memcpy(text->bytes, seed->bytes, seed->length);
  text->length = seed->length;
  if (below(16) == 0) {
    text->length = below(512);
    for (size_t at = 0; at < text->length; at++) text->bytes[at] = (char)random_bits();
  }
  for (size_t changes = below(4); changes > 0; changes--) change(text);
}

static void count_value(const struct json *value, void *context) {
  size_t *total = context;
  *total += strlen(json_type_name(value));
}

static void use_requests(struct arena *arena, const struct json *requests) {
  if (requests == NULL) return;
  for (const struct json *each = requests->first; each != NULL; each = each->next) {
    const struct json *devices = json_member(each, "devices");
    for (const struct json *data = devices == NULL ? each : devices->first; data != NULL; data = data->next) {
      struct device device = {.driver = json_string_of(json_member(data, "driver")), .data = data};
      for (enum field field = 0; field < field_count; field++) {
        const char *text = device_field(arena, &device, field);
        if (text != NULL && field == field_pci) is_pci_address(text);
      }
      is_for_dpdk(arena, &device);
      if (devices == NULL) break;
    }
  }
}

/* Of `--timeout`, which a CDI spec hands to the hook. */
static void use_seconds(const char *copy) {
  long milliseconds;
  if (parse_seconds(copy, &milliseconds) && (milliseconds < 0 || milliseconds >= 1000001L * 1000)) abort();
}

static bool use_text(const struct text *text, FILE *sink) {
  struct arena arena = {NULL};
  struct problem problem = {0};
  struct json_path *path;
  size_t total = 0;
  // Exactly as long as it is, so that one byte too far is seen.
  char *copy = malloc(text->length + 1);
  if (copy == NULL) abort();
  memcpy(copy, text->bytes, text->length);
  copy[text->length] = '\0';
  use_seconds(copy);
  if (json_path_parse(&arena, text->length % 2 == 0 ? ".requests[*].devices[0]['attributes']" : copy, &path, &problem)) {
    problem.code = exit_ok;
  }
  problem.code = exit_ok;
  const struct document *document = document_parse(&arena, "fuzz", copy, text->length, &problem);
  if ((document == NULL) == (problem.code == exit_ok)) abort();
  if (document != NULL) {
    json_print(sink, document->root);
    if (path != NULL) json_path_visit(document->root, path, count_value, &total);
    use_requests(&arena, json_member(document->root, "requests"));
    const struct json *claims = json_member(document->root, "claims");
    for (const struct json *each = claims == NULL ? NULL : claims->first; each != NULL; each = each->next) {
      use_requests(&arena, json_member(each, "requests"));
    }
  }
  free(copy);
  arena_free(&arena);
  return document != NULL;
}

/* Nothing that is refused has left something behind that could be used. */
static bool use_state(const struct text *text, const char *copy) {
  struct arena arena = {NULL};
  struct problem problem = {0};
  struct oci_state container;
  bool ok = oci_state_parse(&arena, copy, text->length, &container, &problem);
  if (ok == (problem.code != exit_ok) || (ok && !is_sandbox_id(container.sandbox, strlen(container.sandbox)))) abort();
  const char *pod[] = {container.pod_uid, container.pod_namespace, container.pod_name};
  for (size_t index = 0; index < sizeof pod / sizeof *pod; index++) {
    if ((pod[index] == NULL) != (pod[0] == NULL)) abort();
    if (pod[index] != NULL && !is_plain_name(pod[index], strlen(pod[index]), max_pod_bytes)) abort();
  }
  arena_free(&arena);
  return ok;
}

static bool use_gate(const struct text *text, const char *copy) {
  struct problem problem = {0};
  struct gate gate;
  char reason[40];
  bool ok = gate_parse(copy, text->length, &gate, &problem);
  if (ok == (problem.code != exit_ok)) abort();
  if (ok && (gate.state == gate_silent) != (gate.sandbox[0] == '\0')) abort();
  printable(reason, sizeof reason, copy, text->length);
  for (const char *at = ok ? gate.reason : reason; *at != '\0'; at++) {
    if (*at < ' ' || *at >= 127) abort();
  }
  return ok && gate.state != gate_silent;
}

/* Exactly as long as it is, so that one byte too far is seen. */
static void use_in_gate(const struct text *text, size_t *states, size_t *gates) {
  char *copy = malloc(text->length == 0 ? 1 : text->length);
  if (copy == NULL) abort();
  memcpy(copy, text->bytes, text->length);
  *states += use_state(text, copy);
  *gates += use_gate(text, copy);
  free(copy);
}

static struct text load(const char *path) {
  struct arena arena = {NULL};
  struct problem problem = {0};
  struct text text = {malloc(max_bytes), 0};
  char *bytes = read_stable_file(&arena, path, &text.length, &problem);
  if (bytes == NULL || text.length > max_bytes || text.bytes == NULL) die(exit_usage, "%s: %s", path, problem.text);
  memcpy(text.bytes, bytes, text.length);
  arena_free(&arena);
  return text;
}

int main(int argc, char **argv) {
  struct text seeds[max_seeds];
  size_t seed_count = 0, documents = 0, states = 0, gates = 0;
  if (argc < 4 || argc > 3 + max_seeds) die(exit_usage, "fuzz ROUNDS SEED FILE...");
  for (char **path = argv + 3; *path != NULL; path++) seeds[seed_count++] = load(*path);
  struct text text = {malloc(max_bytes), 0};
  FILE *sink = fopen("/dev/null", "w");
  size_t rounds = strtoull(argv[1], NULL, 10);
  state = strtoull(argv[2], NULL, 10);
  if (text.bytes == NULL || sink == NULL) return exit_system;
  for (size_t round = 0; round < rounds; round++) {
    make_text(&text, seeds, seed_count);
    documents += use_text(&text, sink);
    use_in_gate(&text, &states, &gates);
  }
  printf("%zu %zu %zu %zu\n", documents, rounds - documents, states, gates);
  while (seed_count > 0) free(seeds[--seed_count].bytes);
  free(text.bytes);
  fclose(sink);
  return exit_ok;
}
