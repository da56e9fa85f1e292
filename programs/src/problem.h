/* Exit codes of the tool, and failures on their way to where they are reported. */
#ifndef NETDRA_PROBLEM_H
#define NETDRA_PROBLEM_H

#include <stdbool.h>

/* Part of the interface: scripts branch on these. */
enum exit_code {
  exit_ok = 0,
  exit_not_found = 1, /* no such claim, request, device or path, or no metadata at all */
  exit_usage = 2,     /* the command line is wrong */
  exit_malformed = 3, /* a file exists but is not readable metadata */
  exit_timeout = 4,   /* the wait has timed out */
  exit_system = 5,    /* unreadable file, no memory, output or program that the system refuses */
};

/* A failure that is being returned to callers. `code` is exit_ok while there is none. */
struct problem {
  enum exit_code code;
  char text[1024];
};

/* Fills in a problem. Returns false, so that a function can end with it. */
bool fail(struct problem *problem, enum exit_code code, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The program's name in messages; set by its main file. */
extern const char program_name[];

/* Prints `PROGRAM: TEXT` to stderr. */
void complain(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Complains and ends the process. */
_Noreturn void die(enum exit_code code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
