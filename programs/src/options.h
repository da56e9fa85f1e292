/* The command line. */
#ifndef NETDRA_OPTIONS_H
#define NETDRA_OPTIONS_H

#include "scan.h"

struct options {
  struct place place;
  bool no_headers;             /* list */
  const char *prefix;          /* env, exec: NULL for the default */
  const char *devargs;         /* eal-args, exec: NULL for none */
  const char *flag;            /* eal-args, exec: flag for the allow-list */
  bool af_packet;              /* eal-args, exec */
  bool lcores;                 /* eal-args, exec */
  bool file_prefix;            /* eal-args, exec */
  bool waits;                  /* exec: --generation or --timeout was given */
  long long generation;        /* wait, exec */
  long timeout_ms;             /* wait, exec */
  const char *command;         /* NULL: none was given */
  const char **arguments;      /* all that is neither option nor command */
  size_t count;
  char **program;              /* exec: the words after `--`, up to a NULL; else NULL */
};

/* Fails with exit_usage. */
bool options_parse(struct arena *arena, char **words, struct options *options, struct problem *problem);

/* The text of `help`. */
extern const char help_text[];

#endif
