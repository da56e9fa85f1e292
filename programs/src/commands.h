/* The commands of the tool. Each one prints to stdout only when all its data is complete. */
#ifndef NETDRA_COMMANDS_H
#define NETDRA_COMMANDS_H

#include "device.h"
#include "options.h"

/* Parses the references among the arguments and loads the catalog. On failure, complains and ends the process. */
void load_or_die(struct arena *arena, const struct options *options, struct catalog *catalog);

/* Prints all complaints. Returns the code of the first one, exit_ok if there are none. */
enum exit_code report(const struct catalog *catalog);

/* `NAME=value` texts, terminated by NULL: the output of `env`, without quotes. */
char **build_env(struct arena *arena, const struct options *options, const struct catalog *catalog);

/* Arguments, terminated by NULL: the output of `eal-args`. Ends the process if there is no device for DPDK. */
char **build_eal_args(struct arena *arena, const struct options *options, const struct catalog *catalog);

/* Waits until the generation is reached. Ends the process on timeout. */
void wait_or_die(const struct options *options);

/* `--lcores=0@2,1@3`: an lcore for each CPU that this process may use. */
char *build_lcores(struct arena *arena);

enum exit_code run_list(struct arena *arena, const struct options *options);
enum exit_code run_get(struct arena *arena, const struct options *options);
enum exit_code run_env(struct arena *arena, const struct options *options);
enum exit_code run_eal_args(struct arena *arena, const struct options *options);
enum exit_code run_wait(struct arena *arena, const struct options *options);
enum exit_code run_exec(struct arena *arena, const struct options *options);
enum exit_code run_copy_to(struct arena *arena, const struct options *options);

#endif
