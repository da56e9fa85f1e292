/* The state that a runtime passes on a hook's standard input. Source: OCI runtime specification, "State". */
#ifndef NETDRA_OCI_STATE_H
#define NETDRA_OCI_STATE_H

#include <sys/types.h>

#include "arena.h"
#include "problem.h"

/* Larger than any state: annotations of a pod have at most 256 kB, and Go's JSON has six bytes for some characters of one. */
enum { max_state_bytes = 2 * 1024 * 1024, max_sandbox_bytes = 128, max_pod_bytes = 253 };

struct oci_state {
  const char *sandbox; /* the id of the pod's sandbox, as annotated by containerd or CRI-O */
  pid_t pid;           /* of the container's first process; 0 if the runtime does not report it */
  /* Of the pod: plain names of up to max_pod_bytes. All NULL unless the runtime reports each of them. */
  const char *pod_uid, *pod_namespace, *pod_name;
};

/* Fails with exit_malformed. */
bool oci_state_parse(struct arena *arena, const char *text, size_t length, struct oci_state *state,
                     struct problem *problem);

/* Whether a text can be the id of a sandbox: 1 to max_sandbox_bytes printable characters without blanks. */
bool is_sandbox_id(const char *text, size_t length);

/* Whether a text consists of 1 to `limit` letters, digits, `_`, `.` and `-`. */
bool is_plain_name(const char *text, size_t length, size_t limit);

#endif
