/* The announcement of a waiting container: `src/framework/metadata/gate/waiting-sandbox.ts` reads it. */
#ifndef NETDRA_ANNOUNCEMENT_H
#define NETDRA_ANNOUNCEMENT_H

#include "oci-state.h"

struct announcement {
  int file;         /* -1: no file */
  long refreshed_ms; /* as of now_ms */
};

/*
 * Writes `waiting.SANDBOX.PID` into an open directory: a driver that starts can then serve the sandbox before it connects to
 * the runtime, which cannot report this sandbox while a hook runs. Without the announcement containers only wait longer, so it
 * reports no errors. A process has one announcement; a signal that ends the process removes it.
 */
void announce(struct announcement *announcement, int directory, const struct oci_state *container);

/* Updates the file's modification time now and then, which shows that the container still waits. */
void refresh_announcement(struct announcement *announcement);

void remove_announcement(struct announcement *announcement);

#endif
