#include "gate-wait.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "announcement.h"
#include "clock.h"

/* For changes that inotify does not report: processes that end, and file systems without inotify. */
enum { poll_ms = 200 };

bool is_orphan(pid_t parent) { return getppid() != parent; }

/*
 * What the kernel says of a process, from its state on. Source: proc_pid_stat(5). Returns NULL with errno if it says nothing.
 */
static const char *read_process(pid_t pid, char *stat, size_t size) {
  char path[32];
  snprintf(path, sizeof path, "/proc/%ld/stat", (long)pid);
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return NULL;
  ssize_t length = read(file, stat, size - 1);
  int reason = errno;
  close(file);
  errno = reason;
  if (length < 0) return NULL;
  stat[length] = '\0';
  // `pid (name) state`: the name can contain any character.
  const char *name_end = strrchr(stat, ')');
  errno = EBADMSG;
  return name_end == NULL || name_end[1] != ' ' ? NULL : name_end + 2;
}

/* Whether the container's first process has ended; a zombie counts as ended, an unknown state as running. */
static bool has_ended(pid_t pid) {
  char stat[512];
  if (pid == 0) return false;
  const char *process = read_process(pid, stat, sizeof stat);
  if (process == NULL) return errno == ESRCH || (errno == ENOENT && access("/proc/self/stat", F_OK) == 0);
  return *process == 'Z' || *process == 'X';
}

/* How long ago the container's first process has started, which is just before its first hook; 0 if that is not known. */
static long age_ms(pid_t pid) {
  enum { fields_before_start = 19 };
  char stat[512], *end;
  struct timespec now;
  const char *field = pid == 0 ? NULL : read_process(pid, stat, sizeof stat);
  for (int index = 0; field != NULL && index < fields_before_start; index++) {
    field = strchr(field, ' ');
    if (field != NULL) field++;
  }
  if (field == NULL || clock_gettime(CLOCK_BOOTTIME, &now) != 0) return 0;
  unsigned long long ticks = strtoull(field, &end, 10);
  if (end == field) return 0;
  long long started_ms = (long long)(ticks * 1000 / (unsigned long long)sysconf(_SC_CLK_TCK));
  long long age = (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000 - started_ms;
  return age < 0 ? 0 : (long)age;
}

/* Whether the directory was removed, and perhaps recreated for another claim of that name. */
static bool has_gone(const struct gate_wait *wait) {
  struct stat open_one, named_one;
  // Not known: the next look tells.
  if (fstat(wait->directory, &open_one) != 0) return false;
  if (stat(wait->claim_dir, &named_one) != 0) return errno == ENOENT || errno == ENOTDIR;
  return open_one.st_dev != named_one.st_dev || open_one.st_ino != named_one.st_ino;
}

static bool fail_unprepared(struct problem *problem) {
  return fail(problem, exit_not_found, "the claim is not prepared on this node any more");
}

/* Whether a call may succeed a moment later: the node is short of something, or its disk does not answer. */
static bool is_temporary(int reason) {
  static const int reasons[] = {EMFILE, ENFILE, ENOMEM, EIO, EINTR, EAGAIN};
  for (size_t index = 0; index < sizeof reasons / sizeof *reasons; index++) {
    if (reasons[index] == reason) return true;
  }
  return false;
}

bool gate_open(struct gate_wait *wait, struct problem *problem) {
  wait->deadline_ms -= age_ms(wait->container.pid);
  for (;;) {
    wait->directory = open(wait->claim_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (wait->directory >= 0) return true;
    int reason = errno;
    if (reason == ENOENT || reason == ENOTDIR) return fail_unprepared(problem);
    if (!is_temporary(reason) || now_ms() >= wait->deadline_ms || is_orphan(wait->parent)) {
      return fail(problem, exit_system, "the claim's directory cannot be opened: %s", strerror(reason));
    }
    sleep_ms(poll_ms);
  }
}

static bool is_about(const struct gate *gate, const struct gate_wait *wait) {
  return strcmp(gate->sandbox, wait->container.sandbox) == 0;
}

/* @param last what the driver said last of this sandbox; `unreadable` why the gate says nothing now, if that is a failure */
static bool fail_late(const struct gate *gate, const struct gate *last, const struct problem *unreadable,
                      struct problem *problem) {
  static const char late[] = "the devices of the claim were not ready in time";
  if (unreadable->code != exit_ok) return fail(problem, exit_timeout, "%s: %.900s", late, unreadable->text);
  if (last->reason[0] != '\0') return fail(problem, exit_timeout, "%s: %s", late, last->reason);
  if (last->state != gate_silent) return fail(problem, exit_timeout, "%s: the driver gives no reason", late);
  if (gate->state == gate_served) {
    return fail(problem, exit_timeout, "%s: they are in sandbox %s", late, gate->sandbox);
  }
  return fail(problem, exit_timeout, "%s: the driver has said nothing about this sandbox, it may not be running", late);
}

/* Returns after a change in the directory, or after a short time. */
static void await_change(int inotify, long at_most_ms) {
  char events[4096];
  struct pollfd change = {.fd = inotify, .events = POLLIN};
  if (inotify < 0) {
    sleep_ms(at_most_ms);
    return;
  }
  if (poll(&change, 1, (int)at_most_ms) > 0) {
    while (read(inotify, events, sizeof events) > 0) continue;
  }
}

static int watch(int directory) {
  char path[32];
  int inotify = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
  snprintf(path, sizeof path, "/proc/self/fd/%d", directory);
  if (inotify < 0) return -1;
  uint32_t changes = IN_MOVED_TO | IN_CLOSE_WRITE | IN_DELETE_SELF | IN_MOVE_SELF;
  if (inotify_add_watch(inotify, path, changes) >= 0) return inotify;
  close(inotify);
  return -1;
}

static bool wait_until_served(const struct gate_wait *wait, int inotify, struct announcement *announcement,
                              struct problem *problem) {
  struct gate gate, last = {.state = gate_silent};
  for (;;) {
    // One that cannot be read now may be in a moment, or be written by another version of the driver.
    struct problem unreadable = {0};
    bool is_read = gate_read(wait->directory, &gate, &unreadable);
    if (is_read && is_about(&gate, wait)) {
      if (gate.state == gate_served) return true;
      if (gate.state == gate_ended) return fail(problem, exit_not_found, "the sandbox of the container is being stopped");
      last = gate;
    }
    if (has_gone(wait)) return fail_unprepared(problem);
    if (has_ended(wait->container.pid)) return fail(problem, exit_not_found, "the container has ended");
    if (is_orphan(wait->parent)) return fail(problem, exit_not_found, "the container runtime has given the container up");
    long left = wait->deadline_ms - now_ms();
    if (left <= 0) return fail_late(&gate, &last, &unreadable, problem);
    refresh_announcement(announcement);
    await_change(inotify, left < poll_ms ? left : poll_ms);
  }
}

bool gate_wait(const struct gate_wait *wait, struct problem *problem) {
  struct gate gate;
  struct problem unreadable = {0};
  // The usual case; it works without a running driver.
  if (gate_read(wait->directory, &gate, &unreadable) && gate.state == gate_served && is_about(&gate, wait)) return true;
  struct announcement announcement;
  announce(&announcement, wait->directory, &wait->container);
  int inotify = watch(wait->directory);
  bool ok = wait_until_served(wait, inotify, &announcement, problem);
  remove_announcement(&announcement);
  if (inotify >= 0) close(inotify);
  return ok;
}
