#include "printable.h"

#include <stdio.h>
#include <string.h>

char *printable(char *out, size_t size, const char *text, size_t length) {
  static const char end[] = "...";
  size_t used = 0;
  for (size_t at = 0; at < length; at++) {
    unsigned char byte = (unsigned char)text[at];
    size_t width = byte >= ' ' && byte < 127 ? 1 : 4;
    // Behind the last character only the NUL needs room.
    if (used + width + (at + 1 < length ? sizeof end : 1) > size) {
      strcpy(out + used, end);
      return out;
    }
    if (width == 1) {
      out[used] = (char)byte;
    } else {
      snprintf(out + used, width + 1, "\\x%02x", byte);
    }
    used += width;
  }
  out[used] = '\0';
  return out;
}
