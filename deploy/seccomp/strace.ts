/**
 * Names of system calls in the output of `strace -c -U name,calls`. Calls without a name in strace (`syscall_0x1d5`)
 * are left out: a profile needs names.
 */
export function parseStraceSummary(text: string): string[] {
  return text.split('\n').flatMap((line) => {
    const [, name] = /^\s*([a-z_][a-z0-9_]*)\s+\d+\s*$/.exec(line) ?? [];
    return name === undefined || name === 'total' || /^syscall_0x/.test(name) ? [] : [name];
  });
}
