#include "utf8.h"

size_t utf8_width(const char *text, size_t length) {
  static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};
  if (length == 0) return 0;
  unsigned char lead = (unsigned char)text[0];
  if (lead < 0x80) return 1;
  size_t width = lead >> 5 == 0x06 ? 2 : lead >> 4 == 0x0e ? 3 : lead >> 3 == 0x1e ? 4 : 0;
  if (width == 0 || width > length) return 0;
  uint32_t character = lead & (0x7fu >> width);
  for (size_t index = 1; index < width; index++) {
    unsigned char byte = (unsigned char)text[index];
    if (byte >> 6 != 0x02) return 0;
    character = character << 6 | (byte & 0x3f);
  }
  int surrogate = character >= 0xd800 && character <= 0xdfff;
  return character < smallest[width] || character > 0x10ffff || surrogate ? 0 : width;
}

size_t utf8_encode(uint32_t character, char *out) {
  if (character < 0x80) {
    out[0] = (char)character;
    return 1;
  }
  size_t width = character < 0x800 ? 2 : character < 0x10000 ? 3 : 4;
  for (size_t index = width - 1; index > 0; index--) {
    out[index] = (char)(0x80 | (character & 0x3f));
    character >>= 6;
  }
  out[0] = (char)((0xf00u >> width) | character);
  return width;
}
