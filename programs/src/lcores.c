#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

#include "commands.h"

/* Numbered from 0, because DPDK accepts only numbers below RTE_MAX_LCORE, by default 128: the CPUs of a container may be higher. */
char *build_lcores(struct arena *arena) {
  // 8,192 CPUs, as many as Linux supports: sched_getaffinity fails if the set is smaller than the machine.
  cpu_set_t cpus[8];
  enum { max_cpus = 8 * CPU_SETSIZE, item_bytes = sizeof "8191@8191" };
  if (sched_getaffinity(0, sizeof cpus, cpus) != 0) die(exit_system, "the CPUs of this process are unknown: %s", strerror(errno));
  const char *separator = "";
  char *text = arena_alloc(arena, sizeof "--lcores=" + (size_t)CPU_COUNT_S(sizeof cpus, cpus) * item_bytes), *end = text;
  end += sprintf(end, "--lcores=");
  for (int cpu = 0, lcore = 0; cpu < max_cpus; cpu++) {
    if (!CPU_ISSET_S(cpu, sizeof cpus, cpus)) continue;
    end += sprintf(end, "%s%d@%d", separator, lcore++, cpu);
    separator = ",";
  }
  return text;
}
