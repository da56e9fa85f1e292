/*
 * netdra-gate: lets a container start once the devices of a claim are in its pod's sandbox. It is an OCI hook
 * (createRuntime): the runtime runs it on the host, waits for it, and abandons the container if it fails. It depends only
 * on a file of the driver, so that containers of a sandbox that is served start even while the driver is not running.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "gate-wait.h"
#include "printable.h"

const char program_name[] = "netdra-gate";

static const char usage[] = "netdra-gate --claim-dir DIR [--timeout SECONDS]";
/* Less than the two minutes after which the kubelet abandons a container. */
enum { default_timeout_ms = 100 * 1000, poll_ms = 200 };

static void parse_arguments(char **words, struct gate_wait *wait, long *timeout_ms) {
  *timeout_ms = default_timeout_ms;
  for (; *words != NULL; words += 2) {
    if (words[1] != NULL && strcmp(*words, "--claim-dir") == 0) {
      wait->claim_dir = words[1];
    } else if (words[1] == NULL || strcmp(*words, "--timeout") != 0 || !parse_seconds(words[1], timeout_ms)) {
      die(exit_usage, "wrong arguments: %s expected", usage);
    }
  }
  if (wait->claim_dir == NULL || wait->claim_dir[0] != '/') die(exit_usage, "wrong arguments: %s expected", usage);
}

/* Reads standard input to its end. */
static char *read_state(struct arena *arena, const struct gate_wait *wait, size_t *length, struct problem *problem) {
  char *bytes = arena_alloc(arena, max_state_bytes + 1);
  struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
  for (*length = 0;;) {
    int ready = poll(&input, 1, poll_ms);
    if (is_orphan(wait->parent) || now_ms() >= wait->deadline_ms) {
      fail(problem, exit_system, "the runtime does not end what it says of the container");
      return NULL;
    }
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    ssize_t count = read(STDIN_FILENO, bytes + *length, max_state_bytes + 1 - *length);
    if (count == 0) return bytes;
    if (count > 0) *length += (size_t)count;
    if (count < 0 && errno != EINTR && errno != EAGAIN) {
      fail(problem, exit_system, "the state of the container cannot be read: %s", strerror(errno));
      return NULL;
    }
    if (*length > max_state_bytes) {
      fail(problem, exit_malformed, "the state of the container is larger than %d bytes", max_state_bytes);
      return NULL;
    }
  }
}

static bool wait_at_gate(struct arena *arena, struct gate_wait *wait, struct problem *problem) {
  size_t length;
  const char *state = read_state(arena, wait, &length, problem);
  return state != NULL && oci_state_parse(arena, state, length, &wait->container, problem) &&
         gate_open(wait, problem) && gate_wait(wait, problem);
}

/* The runtime turns it into an event: one line, with all that is needed to investigate. */
static void report(const struct gate_wait *wait, const struct problem *problem) {
  char what[sizeof problem->text], directory[512], sandbox[max_sandbox_bytes + 1];
  const char *id = wait->container.sandbox == NULL ? "unknown" : wait->container.sandbox;
  complain("%s (sandbox %s, claim directory %s): see the logs of the netdra pod on this node",
           printable(what, sizeof what, problem->text, strlen(problem->text)),
           printable(sandbox, sizeof sandbox, id, strlen(id)),
           printable(directory, sizeof directory, wait->claim_dir, strlen(wait->claim_dir)));
}

int main(int argc, char **argv) {
  struct arena arena = {NULL};
  struct problem problem = {0};
  struct gate_wait wait = {.parent = getppid(), .directory = -1};
  sigset_t none;
  long timeout_ms;
  // The parent process may have blocked or ignored the signals that end us.
  signal(SIGTERM, SIG_DFL);
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  if (argc < 2) die(exit_usage, "wrong arguments: %s expected", usage);
  parse_arguments(argv + 1, &wait, &timeout_ms);
  wait.deadline_ms = now_ms() + timeout_ms;
  bool ok = wait_at_gate(&arena, &wait, &problem);
  if (!ok) report(&wait, &problem);
  if (wait.directory >= 0) close(wait.directory);
  arena_free(&arena);
  return ok ? exit_ok : (int)problem.code;
}
