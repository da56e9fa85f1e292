import { execFileSync } from 'node:child_process';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatCommand, formatSettings } from '../../../e2e/vm/run-files.ts';

const task = { repository: '/a repository', command: [], terminal: false, rows: 24, columns: 80, env: {} };
const bash = (script: string) =>
  execFileSync('bash', ['--norc', '-c', script], { encoding: 'utf8', env: { PATH: '/usr/bin:/bin' } });

describe('the script that the guest runs', () => {
  it('hands on the words of the command as they are', () => {
    const word = fc.stringMatching(/^[ -~\n]*$/);
    fc.assert(
      fc.property(fc.array(word, { minLength: 1, maxLength: 4 }), (words) => {
        const command = ['printf', '%s\\0', ...words];
        expect(bash(formatCommand({ ...task, command }))).toBe(words.map((each) => `${each}\0`).join(''));
      }),
      { numRuns: 20 },
    );
  });

  it('has those variables of the host that are meant for it, and none that name its folders', () => {
    const env = { CI: 'true', HOME: '/home/me', NETDRA_X: "it's", NETDRA_CACHE: '/c', NETDRA_VM_RESULTS: '/r' };
    const lines = bash(formatCommand({ ...task, command: ['env'], env })).split('\n');
    expect(lines).toEqual(expect.arrayContaining(['CI=true', "NETDRA_X=it's"]));
    expect(lines.filter((line) => /^(HOME|NETDRA_CACHE|NETDRA_VM_)/.test(line))).toEqual([]);
    expect(lines.find((line) => line.startsWith('PATH='))).toMatch(/^PATH=\/a repository\/node_modules\/\.bin:/);
  });

  it('is a shell without a command', () => {
    expect(formatCommand(task)).toMatch(/^exec 'bash' '-i'$/m);
  });

  it('is told where the repository is', () => {
    const script = `${formatSettings({ ...task, terminal: true })}echo "$repository $terminal $rows $columns"`;
    expect(bash(script)).toBe('/a repository yes 24 80\n');
  });

  it('has no input and an interface that leads nowhere, unless the task says otherwise', () => {
    const settings = (more: object) => bash(`${formatSettings({ ...task, ...more })}echo "$input $address $gateway"`);
    expect(settings({})).toBe('no 10.0.2.15/24 10.0.2.2\n');
    const network = { address: '192.0.2.1/24', gateway: '192.0.2.2' };
    expect(settings({ input: true, network })).toBe('yes 192.0.2.1/24 192.0.2.2\n');
  });
});
