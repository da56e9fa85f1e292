#include "gate-file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "printable.h"

static const char first_line[] = "netdra-gate 1\n";
static const char file_name[] = "gate";

static bool refuse(struct problem *problem, const char *why) {
  return fail(problem, exit_malformed, "the file gate cannot be understood: %s", why);
}

static bool parse_state(const char *word, size_t length, enum gate_state *state) {
  static const char *const names[] = {[gate_waiting] = "waiting", [gate_served] = "served", [gate_ended] = "ended"};
  for (int index = gate_waiting; index <= gate_ended; index++) {
    *state = (enum gate_state)index;
    if (strlen(names[index]) == length && memcmp(names[index], word, length) == 0) return true;
  }
  return false;
}

/* The position of a byte, or the end. */
static const char *find(const char *text, const char *end, char wanted) {
  const char *found = memchr(text, wanted, (size_t)(end - text));
  return found == NULL ? end : found;
}

bool gate_parse(const char *text, size_t length, struct gate *gate, struct problem *problem) {
  size_t first_length = sizeof first_line - 1;
  *gate = (struct gate){.state = gate_silent};
  if (length == 0) return true;
  if (length < first_length || memcmp(text, first_line, first_length) != 0) {
    return refuse(problem, "it is of another version of the driver, or damaged");
  }
  const char *word = text + first_length;
  const char *end = find(word, text + length, '\n');
  if (end == text + length) return refuse(problem, "its second line is cut off");
  const char *word_end = find(word, end, ' ');
  const char *id = word_end == end ? end : word_end + 1;
  const char *id_end = find(id, end, ' ');
  if (!parse_state(word, (size_t)(word_end - word), &gate->state)) return refuse(problem, "its state is unknown");
  if (!is_sandbox_id(id, (size_t)(id_end - id))) return refuse(problem, "it names no sandbox");
  memcpy(gate->sandbox, id, (size_t)(id_end - id));
  if (id_end < end) printable(gate->reason, sizeof gate->reason, id_end + 1, (size_t)(end - id_end - 1));
  return true;
}

/* Reads the whole file unless it is too long. Returns its length, or -1 with errno. */
static ssize_t read_all(int file, char *bytes, size_t size) {
  size_t length = 0;
  for (;;) {
    ssize_t count = read(file, bytes + length, size - length);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -1;
    if (count == 0) return (ssize_t)length;
    length += (size_t)count;
    if (length == size) return (ssize_t)length;
  }
}

bool gate_read(int directory, struct gate *gate, struct problem *problem) {
  char bytes[max_gate_bytes + 1];
  struct stat status;
  *gate = (struct gate){.state = gate_silent};
  int file = openat(directory, file_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0 && errno == ENOENT) return true;
  if (file < 0) return fail(problem, exit_system, "the file gate cannot be opened: %s", strerror(errno));
  bool is_file = fstat(file, &status) == 0 && S_ISREG(status.st_mode);
  ssize_t length = is_file ? read_all(file, bytes, sizeof bytes) : 0;
  int reason = errno;
  close(file);
  if (!is_file) return refuse(problem, "it is not a regular file");
  if (length < 0) return fail(problem, exit_system, "the file gate cannot be read: %s", strerror(reason));
  if (length > max_gate_bytes) return refuse(problem, "it is too long");
  return gate_parse(bytes, (size_t)length, gate, problem);
}
