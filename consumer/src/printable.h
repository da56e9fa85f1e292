/* What others wrote, for a terminal or a log. */
#ifndef NETDRA_PRINTABLE_H
#define NETDRA_PRINTABLE_H

#include <stddef.h>

/*
 * Copies text into `out` of `size` bytes, with a NUL behind it: what is no printable ASCII becomes `\xNN`, and what does
 * not fit is left out, with `...` in its place. Returns `out`.
 */
char *printable(char *out, size_t size, const char *text, size_t length);

#endif
