import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { createProfile, profilePath, readTraced, renderProfile } from '../../../deploy/seccomp/profile.ts';
import { parseStraceSummary } from '../../../deploy/seccomp/strace.ts';

/** By which a process with the driver's capabilities could leave its container or reach the rest of the kernel. */
const dangerous = [
  'add_key',
  'bpf',
  'delete_module',
  'finit_module',
  'fsconfig',
  'fsmount',
  'fsopen',
  'init_module',
  'io_uring_setup',
  'kexec_file_load',
  'kexec_load',
  'keyctl',
  'mknod',
  'mknodat',
  'mount',
  'mount_setattr',
  'move_mount',
  'name_to_handle_at',
  'open_by_handle_at',
  'open_tree',
  'perf_event_open',
  'pivot_root',
  'process_vm_readv',
  'process_vm_writev',
  'ptrace',
  'quotactl',
  'reboot',
  'request_key',
  'sethostname',
  'settimeofday',
  'swapon',
  'umount2',
  'unshare',
  'userfaultfd',
];

describe('deploy/seccomp/netdra.json', () => {
  const profile = createProfile(readTraced());
  const names = profile.syscalls.flatMap((each) => each.names);

  it('is what `npm run seccomp` generates from the traced calls', () => {
    expect(readFileSync(profilePath, 'utf8')).toBe(renderProfile(readTraced()));
  });

  it('lists each system call once, sorted, and fails all others with ENOSYS', () => {
    expect(names).toEqual([...new Set(names)].sort());
    expect(readTraced()).toEqual([...new Set(readTraced())].sort());
    expect(profile).toMatchObject({ defaultAction: 'SCMP_ACT_ERRNO', defaultErrnoRet: 38 });
    expect(profile.syscalls).toHaveLength(1);
  });

  it('includes all traced system calls, with their variants on other processors and kernels', () => {
    expect(names).toEqual(expect.arrayContaining(['setns', 'socket', 'sendmsg', 'execve', 'openat', 'rename']));
    const arm64 = [
      'epoll_pwait',
      'faccessat',
      'fstat',
      'newfstatat',
      'ppoll',
      'renameat',
      'renameat2',
      'mkdirat',
      'unlinkat',
    ];
    expect(names).toEqual(expect.arrayContaining(arm64));
    const newer = ['clone3', 'close_range', 'epoll_pwait2', 'faccessat2', 'fchmodat2', 'futex_wait', 'rseq', 'statx'];
    expect(names).toEqual(expect.arrayContaining(newer));
  });

  it.each(dangerous)('does not allow the system call %s', (name) => {
    expect(names).not.toContain(name);
  });

  it('adds the whole family of a traced call, and no other calls', () => {
    const small = createProfile(['rename']).syscalls[0]?.names;
    expect(small).toEqual(expect.arrayContaining(['rename', 'renameat', 'renameat2']));
    expect(small).not.toContain('socket');
  });
});

it('parseStraceSummary returns the names of calls, without the heading, the total and calls that strace cannot name', () => {
  const text =
    'syscall                 calls\n------------------- ---------\nfutex                    2876\nsyscall_0x1d5              2\nopenat                     12\n------------------- ---------\ntotal                    2890\n';
  expect(parseStraceSummary(text)).toEqual(['futex', 'openat']);
});
