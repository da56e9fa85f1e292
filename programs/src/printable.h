/* Makes untrusted text safe for a terminal or a log. */
#ifndef NETDRA_PRINTABLE_H
#define NETDRA_PRINTABLE_H

#include <stddef.h>

/*
 * Copies text into `out` of `size` bytes and adds a NUL: anything but printable ASCII becomes `\xNN`, and text that does
 * not fit is replaced by `...`. Returns `out`.
 */
char *printable(char *out, size_t size, const char *text, size_t length);

#endif
