/* Time that only goes forward. */
#ifndef NETDRA_CLOCK_H
#define NETDRA_CLOCK_H

#include <stdbool.h>

long now_ms(void);

/* Sleeps; a signal ends it early. */
void sleep_ms(long milliseconds);

/* `2` or `0.25`, in seconds, as milliseconds. */
bool parse_seconds(const char *text, long *milliseconds);

#endif
