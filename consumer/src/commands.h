/* What the tool can do. Each command prints to stdout only when all that it needs is there. */
#ifndef NETDRA_COMMANDS_H
#define NETDRA_COMMANDS_H

#include "device.h"
#include "options.h"

/* Parses the references among the arguments and loads the catalog. Ends the process after complaining if it cannot. */
void load_or_die(struct arena *arena, const struct options *options, struct catalog *catalog);

/* Prints what went wrong. Returns the code of the first complaint, exit_ok if there is none. */
enum exit_code report(const struct catalog *catalog);

/* `NAME=value` texts with a NULL behind them: what `env` prints, not quoted. */
char **build_env(struct arena *arena, const struct options *options, const struct catalog *catalog);

/* Arguments with a NULL behind them: what `eal-args` prints. Ends the process if there is no device for DPDK. */
char **build_eal_args(struct arena *arena, const struct options *options, const struct catalog *catalog);

/* Waits until the generation is reached. Ends the process after the time is up. */
void wait_or_die(const struct options *options);

enum exit_code run_list(struct arena *arena, const struct options *options);
enum exit_code run_get(struct arena *arena, const struct options *options);
enum exit_code run_env(struct arena *arena, const struct options *options);
enum exit_code run_eal_args(struct arena *arena, const struct options *options);
enum exit_code run_wait(struct arena *arena, const struct options *options);
enum exit_code run_exec(struct arena *arena, const struct options *options);
enum exit_code run_copy_to(struct arena *arena, const struct options *options);

#endif
