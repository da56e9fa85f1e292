#include "clock.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

long now_ms(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (long)time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

void sleep_ms(long milliseconds) {
  struct timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&time, NULL);
}

bool parse_seconds(const char *text, long *milliseconds) {
  char *end;
  errno = 0;
  if (*text < '0' || *text > '9') return false;
  unsigned long seconds = strtoul(text, &end, 10);
  if (errno != 0 || seconds > 1000000) return false;
  *milliseconds = (long)seconds * 1000;
  if (*end != '.') return *end == '\0';
  long scale = 100;
  for (end++; *end >= '0' && *end <= '9'; end++, scale /= 10) *milliseconds += (*end - '0') * scale;
  return *end == '\0';
}
