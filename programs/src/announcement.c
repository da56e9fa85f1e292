#include "announcement.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"

/* `src/framework/metadata/gate/waiting-sandbox.ts` treats a file that was not refreshed for 5 s as a left-over. */
enum { refresh_ms = 1000, max_name_bytes = 256, max_path_bytes = 320, max_text_bytes = 2048 };

/* Where runtimes bind-mount the network namespaces of sandboxes. */
static const char *const netns_dirs[] = {"/var/run/netns", "/run/netns"};

/* For the signal handler. */
static int announced_directory = -1;
static char announced_name[max_name_bytes];

static bool find_in(const char *dir, const struct stat *wanted, char *path, size_t size) {
  DIR *entries = opendir(dir);
  bool is_found = false;
  if (entries == NULL) return false;
  for (struct dirent *entry; !is_found && (entry = readdir(entries)) != NULL;) {
    struct stat found;
    if (!is_plain_name(entry->d_name, strlen(entry->d_name), max_name_bytes) ||
        fstatat(dirfd(entries), entry->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0) {
      continue;
    }
    is_found = found.st_dev == wanted->st_dev && found.st_ino == wanted->st_ino;
    if (is_found) snprintf(path, size, "%s/%s", dir, entry->d_name);
  }
  closedir(entries);
  return is_found;
}

/*
 * The path at which the container's network namespace is bound. A process of the container is in it by now; the driver
 * does not see processes of the host, so a path below /proc would be useless to it.
 */
static bool find_netns(pid_t pid, char *path, size_t size) {
  char link[48];
  struct stat wanted;
  snprintf(link, sizeof link, "/proc/%ld/ns/net", (long)pid);
  if (pid == 0 || stat(link, &wanted) != 0) return false;
  for (size_t index = 0; index < sizeof netns_dirs / sizeof *netns_dirs; index++) {
    if (find_in(netns_dirs[index], &wanted, path, size)) return true;
  }
  return false;
}

static size_t format(char *text, const struct oci_state *container) {
  char path[max_path_bytes];
  int length = snprintf(text, max_text_bytes, "netdra-waiting 1\npodUid %s\npodNamespace %s\npodName %s\n",
                        container->pod_uid, container->pod_namespace, container->pod_name);
  if (find_netns(container->pid, path, sizeof path)) {
    length += snprintf(text + length, max_text_bytes - (size_t)length, "netns %s\n", path);
  }
  return (size_t)length;
}

static bool write_all(int file, const char *bytes, size_t length) {
  while (length > 0) {
    ssize_t count = write(file, bytes, length);
    if (count < 0 && errno != EINTR) return false;
    if (count > 0) {
      bytes += count;
      length -= (size_t)count;
    }
  }
  return true;
}

/* By rename, so that readers never see a partial file. Returns the open file, or -1. */
static int create(int directory, const char *name, const char *text, size_t length) {
  char temporary[max_name_bytes + 8];
  snprintf(temporary, sizeof temporary, ".%s.tmp", name);
  // Left behind by a killed process.
  unlinkat(directory, temporary, 0);
  int file = openat(directory, temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return -1;
  if (write_all(file, text, length) && renameat(directory, temporary, directory, name) == 0) return file;
  unlinkat(directory, temporary, 0);
  close(file);
  return -1;
}

/* The signal's default handler is already restored, and ends the process when this function returns. */
static void on_signal(int number) {
  unlinkat(announced_directory, announced_name, 0);
  raise(number);
}

static void handle_signals(void) {
  static const int ends[] = {SIGTERM, SIGINT, SIGHUP};
  struct sigaction action = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
  for (size_t index = 0; index < sizeof ends / sizeof *ends; index++) sigaction(ends[index], &action, NULL);
}

void announce(struct announcement *announcement, int directory, const struct oci_state *container) {
  char text[max_text_bytes];
  *announcement = (struct announcement){.file = -1};
  if (container->pod_uid == NULL || !is_plain_name(container->sandbox, strlen(container->sandbox), max_sandbox_bytes)) return;
  snprintf(announced_name, sizeof announced_name, "waiting.%s.%ld", container->sandbox, (long)getpid());
  announced_directory = directory;
  handle_signals();
  announcement->file = create(directory, announced_name, text, format(text, container));
  announcement->refreshed_ms = now_ms();
}

void refresh_announcement(struct announcement *announcement) {
  if (announcement->file < 0 || now_ms() - announcement->refreshed_ms < refresh_ms) return;
  futimens(announcement->file, NULL);
  announcement->refreshed_ms = now_ms();
}

void remove_announcement(struct announcement *announcement) {
  if (announcement->file < 0) return;
  unlinkat(announced_directory, announced_name, 0);
  close(announcement->file);
  announcement->file = -1;
}
