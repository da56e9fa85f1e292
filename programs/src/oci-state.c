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

bool is_plain_name(const char *text, size_t length, size_t limit) {
  static const char plain[] = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz.-";
  for (size_t at = 0; at < length; at++) {
    if (text[at] == '\0' || strchr(plain, text[at]) == NULL) return false;
  }
  return length > 0 && length <= limit;
}

/* Annotations that a runtime adds to containers. */
struct keys {
  const char *sandbox, *pod_uid, *pod_namespace, *pod_name;
};

static const struct keys runtimes[] = {
    {"io.kubernetes.cri.sandbox-id", "io.kubernetes.cri.sandbox-uid", "io.kubernetes.cri.sandbox-namespace",
     "io.kubernetes.cri.sandbox-name"},
    {"io.kubernetes.cri-o.SandboxID", "io.kubernetes.pod.uid", "io.kubernetes.pod.namespace", "io.kubernetes.pod.name"},
};
enum { runtime_count = sizeof runtimes / sizeof *runtimes };

static bool take_sandbox(const struct json *annotations, struct oci_state *state, struct problem *problem) {
  for (size_t index = 0; index < runtime_count; index++) {
    const char *key = runtimes[index].sandbox;
    const struct json *value = json_member(annotations, key);
    if (value == NULL) continue;
    const char *id = json_string_of(value);
    if (id == NULL || !is_sandbox_id(id, strlen(id))) {
      return fail(problem, exit_malformed, "annotation %s of the container is no sandbox id", key);
    }
    // Runtimes set their own annotation. If both are present, the pod may have set the other one.
    if (state->sandbox != NULL && strcmp(state->sandbox, id) != 0) {
      return fail(problem, exit_malformed, "annotations %s and %s of the container differ", runtimes[0].sandbox,
                  key);
    }
    state->sandbox = id;
  }
  if (state->sandbox != NULL) return true;
  return fail(problem, exit_malformed, "the container has neither annotation %s nor %s: its runtime is not supported",
              runtimes[0].sandbox, runtimes[1].sandbox);
}

static const char *plain_name_of(const struct json *annotations, const char *key) {
  const char *text = json_string_of(json_member(annotations, key));
  return text != NULL && is_plain_name(text, strlen(text), max_pod_bytes) ? text : NULL;
}

/* If the annotations of two runtimes are present, one set comes from the pod, which could name another pod. */
static void take_pod(const struct json *annotations, struct oci_state *state) {
  const struct keys *keys = NULL;
  for (size_t index = 0; index < runtime_count; index++) {
    if (json_member(annotations, runtimes[index].sandbox) == NULL) continue;
    if (keys != NULL) return;
    keys = &runtimes[index];
  }
  const char *uid = plain_name_of(annotations, keys->pod_uid);
  const char *namespace = plain_name_of(annotations, keys->pod_namespace);
  const char *name = plain_name_of(annotations, keys->pod_name);
  if (uid == NULL || namespace == NULL || name == NULL) return;
  state->pod_uid = uid;
  state->pod_namespace = namespace;
  state->pod_name = name;
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
  *state = (struct oci_state){.sandbox = NULL};
  const struct json *object = json_read(arena, &source, &syntax);
  if (syntax.code != exit_ok) {
    return fail(problem, exit_malformed, "the state of the container is malformed: %s", syntax.text);
  }
  if (object == NULL) return fail(problem, exit_malformed, "the runtime says nothing of the container on standard input");
  if (object->type != json_object) {
    return fail(problem, exit_malformed, "the state of the container is malformed: it is %s", json_type_name(object));
  }
  const struct json *annotations = json_member(object, "annotations");
  if (!take_pid(json_member(object, "pid"), state, problem) || !take_sandbox(annotations, state, problem)) return false;
  take_pod(annotations, state);
  return true;
}
