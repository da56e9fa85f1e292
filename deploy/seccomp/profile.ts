import { readFileSync } from 'node:fs';

/** A profile, limited to the part of the OCI runtime specification that both containerd and CRI-O read. */
export interface SeccompProfile {
  defaultAction: 'SCMP_ACT_ERRNO';
  /** The error of calls that are not listed. */
  defaultErrnoRet: number;
  syscalls: { names: string[]; action: 'SCMP_ACT_ALLOW' }[];
}

/** ENOSYS: libraries then fall back to an older call, as on a kernel without the newer one. */
const enosys = 38;

/**
 * Calls of a runtime in the container between loading the filter and starting the program. Which of them depends on the
 * runtime and its version. Source: runc `libcontainer/standard_init_linux.go`, crun `src/libcrun/container.c`.
 */
const runtimeCalls = [
  'capget',
  'capset',
  'chdir',
  'close_range',
  'dup3',
  'execve',
  'execveat',
  'fchdir',
  'fchown',
  'fstatfs',
  'getdents64',
  'getppid',
  'prctl',
  'setgid',
  'setgroups',
  'setresgid',
  'setresuid',
  'setsid',
  'setuid',
  'statfs',
  'umask',
];

/** Untraced calls: those that do not return are missing in strace's summary; the last one is for nodes with SELinux. */
const untraced = ['exit', 'exit_group', 'rt_sigreturn', 'lsetxattr'];

/**
 * Groups of equivalent calls, of which the machine where the profile was made has used one. Another processor, kernel,
 * C library or Node.js uses another one of the group, or tries all of them in turn.
 */
const families: readonly (readonly string[])[] = [
  ['access', 'faccessat', 'faccessat2'],
  ['chmod', 'fchmod', 'fchmodat', 'fchmodat2'],
  ['chown', 'fchown', 'fchownat', 'lchown'],
  ['clock_getres', 'clock_gettime', 'clock_nanosleep', 'gettimeofday', 'nanosleep', 'time'],
  ['clone', 'clone3', 'fork', 'vfork'],
  ['dup', 'dup2', 'dup3', 'fcntl', 'flock'],
  ['epoll_create', 'epoll_create1'],
  ['epoll_ctl', 'epoll_pwait', 'epoll_pwait2', 'epoll_wait', 'poll', 'ppoll', 'pselect6', 'select'],
  ['eventfd', 'eventfd2'],
  ['exit', 'exit_group'],
  ['fdatasync', 'fsync', 'sync_file_range'],
  ['fstat', 'lstat', 'newfstatat', 'stat', 'statx'],
  ['fallocate', 'ftruncate', 'truncate'],
  ['futex', 'futex_wait', 'futex_waitv', 'futex_wake', 'get_robust_list', 'membarrier', 'rseq', 'set_robust_list'],
  ['getcpu', 'sched_getaffinity', 'sched_setaffinity', 'sched_yield'],
  [
    'sched_get_priority_max',
    'sched_get_priority_min',
    'sched_getparam',
    'sched_getscheduler',
    'sched_setparam',
    'sched_setscheduler',
  ],
  ['getdents', 'getdents64'],
  ['getegid', 'geteuid', 'getgid', 'getgroups', 'getresgid', 'getresuid', 'getuid'],
  ['getpgid', 'getpgrp', 'getpid', 'getppid', 'getsid', 'gettid', 'set_tid_address'],
  ['getrandom'],
  ['getrlimit', 'prlimit64', 'setrlimit'],
  ['getrusage', 'sysinfo', 'times', 'uname'],
  ['getxattr', 'lgetxattr', 'lsetxattr', 'setxattr'],
  ['inotify_add_watch', 'inotify_init', 'inotify_init1', 'inotify_rm_watch'],
  ['kill', 'tgkill', 'tkill'],
  ['link', 'linkat'],
  [
    'brk',
    'madvise',
    'mincore',
    'mlock',
    'mmap',
    'mprotect',
    'mremap',
    'munlock',
    'munmap',
    'pkey_alloc',
    'pkey_free',
    'pkey_mprotect',
  ],
  ['mkdir', 'mkdirat'],
  ['open', 'openat', 'openat2'],
  ['pidfd_open', 'pidfd_send_signal', 'wait4', 'waitid'],
  ['pipe', 'pipe2'],
  ['pread64', 'preadv', 'preadv2', 'read', 'readv'],
  ['pwrite64', 'pwritev', 'pwritev2', 'write', 'writev'],
  ['readlink', 'readlinkat'],
  ['recv', 'recvfrom', 'recvmmsg', 'recvmsg'],
  ['rename', 'renameat', 'renameat2'],
  ['rmdir', 'unlink', 'unlinkat'],
  [
    'accept',
    'accept4',
    'bind',
    'connect',
    'getpeername',
    'getsockname',
    'getsockopt',
    'listen',
    'setsockopt',
    'shutdown',
    'socket',
    'socketpair',
  ],
  [
    'rt_sigaction',
    'rt_sigpending',
    'rt_sigprocmask',
    'rt_sigqueueinfo',
    'rt_sigreturn',
    'rt_sigsuspend',
    'rt_sigtimedwait',
    'sigaltstack',
    'restart_syscall',
    'rt_tgsigqueueinfo',
  ],
  ['send', 'sendmmsg', 'sendmsg', 'sendto'],
  ['sendfile', 'splice', 'copy_file_range', 'fadvise64'],
  ['signalfd', 'signalfd4'],
  ['symlink', 'symlinkat'],
  ['timer_create', 'timer_delete', 'timer_getoverrun', 'timer_gettime', 'timer_settime', 'getitimer', 'setitimer'],
  ['timerfd_create', 'timerfd_gettime', 'timerfd_settime'],
  ['utime', 'utimensat', 'utimes', 'futimesat'],
];

/** Traced calls that the profile leaves out nevertheless: programs work without them if they fail. */
const leftOut = [
  // libuv collects epoll_ctl calls in a ring if it gets one. Runtimes' default profiles do not allow these either.
  'io_uring_setup',
  'io_uring_enter',
  'io_uring_register',
];

/** @param traced names of calls, see `traced.json` */
export function createProfile(traced: readonly string[]): SeccompProfile {
  const names = new Set([...traced, ...runtimeCalls, ...untraced]);
  for (const family of families) {
    if (family.some((name) => names.has(name))) for (const name of family) names.add(name);
  }
  for (const name of leftOut) names.delete(name);
  return {
    defaultAction: 'SCMP_ACT_ERRNO',
    defaultErrnoRet: enosys,
    syscalls: [{ names: [...names].sort(), action: 'SCMP_ACT_ALLOW' }],
  };
}

/** Content of deploy/seccomp/netdra.json. */
export function renderProfile(traced: readonly string[]): string {
  return `${JSON.stringify(createProfile(traced), null, 2)}\n`;
}

export const tracedPath = new URL('traced.json', import.meta.url);
export const profilePath = new URL('netdra.json', import.meta.url);

/** Calls that the driver was observed to make, sorted: made by `npm run seccomp`. */
export function readTraced(): string[] {
  return JSON.parse(readFileSync(tracedPath, 'utf8')) as string[];
}
