#include "oci-state.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

bool is_sandbox_id(const char *text, size_t length) {
  for (size_t at = 0; at < length; at++) {
    if (text[at] <= ' ' || text[at] >= 127) return false;
  }
  return length > 0 && length <= max_sandbox_bytes;
}

static bool take_sandbox(const struct json *annotations, struct oci_state *state, struct problem *problem) {
  static const char *const keys[] = {"io.kubernetes.cri.sandbox-id", "io.kubernetes.cri-o.SandboxID"};
  for (size_t index = 0; index < sizeof keys / sizeof *keys; index++) {
    const struct json *value = json_member(annotations, keys[index]);
    if (value == NULL) continue;
    const char *id = json_string_of(value);
    if (id == NULL || !is_sandbox_id(id, strlen(id))) {
      return fail(problem, exit_malformed, "annotation %s of the container is no sandbox id", keys[index]);
    }
    // Runtimes set their own one. With both, a pod may have brought the other.
    if (state->sandbox != NULL && strcmp(state->sandbox, id) != 0) {
      return fail(problem, exit_malformed, "annotations %s and %s of the container differ", keys[0], keys[1]);
    }
    state->sandbox = id;
  }
  if (state->sandbox != NULL) return true;
  return fail(problem, exit_malformed, "the container has neither annotation %s nor %s: its runtime is not supported",
              keys[0], keys[1]);
}

static bool take_pid(const struct json *value, struct oci_state *state, struct problem *problem) {
  if (value == NULL) return true;
  const char *text = value->type == json_number ? value->text : "";
  char *end;
  errno = 0;
  long pid = strtol(text, &end, 10);
  if (*text == '\0' || *end != '\0' || errno != 0 || pid < 0 || pid > INT_MAX) {
    return fail(problem, exit_malformed, "the state of the container is malformed: pid is no process id");
  }
  state->pid = (pid_t)pid;
  return true;
}

bool oci_state_parse(struct arena *arena, const char *text, size_t length, struct oci_state *state,
                     struct problem *problem) {
  struct json_source source = {text, length, 0};
  struct problem syntax = {0};
  *state = (struct oci_state){NULL, 0};
  const struct json *object = json_read(arena, &source, &syntax);
  if (syntax.code != exit_ok) {
    return fail(problem, exit_malformed, "the state of the container is malformed: %s", syntax.text);
  }
  if (object == NULL) return fail(problem, exit_malformed, "the runtime says nothing of the container on standard input");
  if (object->type != json_object) {
    return fail(problem, exit_malformed, "the state of the container is malformed: it is %s", json_type_name(object));
  }
  return take_pid(json_member(object, "pid"), state, problem) &&
         take_sandbox(json_member(object, "annotations"), state, problem);
}
