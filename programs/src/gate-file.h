/* The state of a claim's gate: `src/framework/metadata/gate/gate.ts` writes it. */
#ifndef NETDRA_GATE_FILE_H
#define NETDRA_GATE_FILE_H

#include "oci-state.h"

/* Larger than any file that the driver writes. */
enum { max_gate_bytes = 4096 };

enum gate_state {
  gate_silent,  /* no file, or an empty one */
  gate_waiting, /* not yet */
  gate_served,  /* containers of the sandbox may start */
  gate_ended,   /* the sandbox is being stopped */
};

struct gate {
  enum gate_state state;
  char sandbox[max_sandbox_bytes + 1]; /* empty with gate_silent */
  char reason[600];                    /* printable; empty if there is none */
};

/* Fails with exit_malformed for anything that the driver does not write. It renames, so there are no partial files. */
bool gate_parse(const char *text, size_t length, struct gate *gate, struct problem *problem);

/* Reads `gate` in an open directory. Fails with exit_malformed or exit_system; a missing file is gate_silent. */
bool gate_read(int directory, struct gate *gate, struct problem *problem);

#endif
