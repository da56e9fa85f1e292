#include "problem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

bool fail(struct problem *problem, enum exit_code code, const char *format, ...) {
  va_list arguments;
  problem->code = code;
  va_start(arguments, format);
  vsnprintf(problem->text, sizeof problem->text, format, arguments);
  va_end(arguments);
  return false;
}

static void print_line(const char *format, va_list arguments) {
  fprintf(stderr, "%s: ", program_name);
  vfprintf(stderr, format, arguments);
  fputc('\n', stderr);
}

void complain(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print_line(format, arguments);
  va_end(arguments);
}

_Noreturn void die(enum exit_code code, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  print_line(format, arguments);
  va_end(arguments);
  exit(code);
}
