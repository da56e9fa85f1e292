/* What a waiting container says of its sandbox: `src/metadata/waiting-sandbox.ts` reads it. */
#ifndef NETDRA_ANNOUNCEMENT_H
#define NETDRA_ANNOUNCEMENT_H

#include "oci-state.h"

struct announcement {
  int file;         /* -1: there is none */
  long refreshed_ms; /* as of now_ms */
};

/*
 * Writes `waiting.SANDBOX` into an open directory: a driver that starts can then serve the sandbox before it connects to the
 * runtime, which for its part cannot answer for this sandbox while a hook runs. Without it, containers wait longer, so there
 * are no errors. A process has one announcement; a signal that ends the process removes it.
 */
void announce(struct announcement *announcement, int directory, const struct oci_state *container);

/* Renews the file's time of modification now and then, which shows that the container still waits. */
void refresh_announcement(struct announcement *announcement);

void remove_announcement(struct announcement *announcement);

#endif
