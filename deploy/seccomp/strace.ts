/**
 * Names of system calls in what `strace -c -U name,calls` prints. Calls that a kernel is too new for strace to name are left out, as
 * no profile could name them either.
 */
export function parseStraceSummary(text: string): string[] {
  return text.split('\n').flatMap((line) => {
    const [, name] = /^\s*([a-z_][a-z0-9_]*)\s+\d+\s*$/.exec(line) ?? [];
    return name === undefined || name === 'total' || /^syscall_0x/.test(name) ? [] : [name];
  });
}
