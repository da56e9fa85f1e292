/* Waiting for a sandbox to be served. */
#ifndef NETDRA_GATE_WAIT_H
#define NETDRA_GATE_WAIT_H

#include "gate-file.h"

struct gate_wait {
  const char *claim_dir;
  int directory; /* claim_dir, open */
  struct oci_state container;
  pid_t parent;     /* of this process when it started: the runtime */
  long deadline_ms; /* as of now_ms; counted from the start of this process until gate_open */
};

/*
 * Opens the claim's directory. Fails with exit_not_found if it does not exist: the claim is not prepared. Counts the time from
 * the start of the container's first process: the hooks of a container run one after the other, and have one deadline.
 */
bool gate_open(struct gate_wait *wait, struct problem *problem);

/*
 * Returns when the container's sandbox is served. Fails with exit_timeout, with exit_not_found when the sandbox has ended,
 * the claim's directory was removed or nothing waits any more. A gate that cannot be read counts as silent until then.
 */
bool gate_wait(const struct gate_wait *wait, struct problem *problem);

/* Whether the runtime that started this process has ended: waiting is pointless then. */
bool is_orphan(pid_t parent);

#endif
