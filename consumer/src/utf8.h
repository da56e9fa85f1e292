/* UTF-8, RFC 3629. */
#ifndef NETDRA_UTF8_H
#define NETDRA_UTF8_H

#include <stddef.h>
#include <stdint.h>

/* Bytes of the character that `text` starts with: 1 to 4; 0 if it is none, or cut off, or written longer than need be. */
size_t utf8_width(const char *text, size_t length);

/* Writes a character, at most 4 bytes. Returns how many. */
size_t utf8_encode(uint32_t character, char *out);

#endif
