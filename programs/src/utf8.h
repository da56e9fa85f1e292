/* UTF-8, RFC 3629. */
#ifndef NETDRA_UTF8_H
#define NETDRA_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Length of the character at the start of `text`: 1 to 4 bytes; 0 if it is invalid, truncated or overlong. */
size_t utf8_width(const char *text, size_t length);

/* Writes a character, at most 4 bytes. Returns their number. */
size_t utf8_encode(uint32_t character, char *out);

#endif
