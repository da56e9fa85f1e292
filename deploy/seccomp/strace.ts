/**
 * Names of system calls in what `strace -c -U name,calls` prints. Calls that strace has no name for (`syscall_0x1d5`) are left out: a
 * profile needs names.
 */
export function parseStraceSummary(text: string): string[] {
  return text.split('\n').flatMap((line) => {
    const [, name] = /^\s*([a-z_][a-z0-9_]*)\s+\d+\s*$/.exec(line) ?? [];
    return name === undefined || name === 'total' || /^syscall_0x/.test(name) ? [] : [name];
  });
}
