/* Monotonic time. */
#ifndef NETDRA_CLOCK_H
#define NETDRA_CLOCK_H

#include <stdbool.h>

long now_ms(void);

/* Sleeps; a signal ends it early. */
void sleep_ms(long milliseconds);

/* Parses `2` or `0.25`, in seconds; returns milliseconds. */
bool parse_seconds(const char *text, long *milliseconds);

#endif
