import { execFileSync } from 'node:child_process';
import { chmodSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { completionScripts, completionsOf, formatCompletions } from '../../../src/cli/completion.ts';
import { createKubectlPlugin, createProgram } from '../../../src/program.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const main = fileURLToPath(new URL('../../../src/main.ts', import.meta.url));
const valuesAfter = (program: ReturnType<typeof createProgram>, ...words: string[]) => {
  const { found, isFile } = completionsOf(program, words);
  return [...found.map(({ value }) => value), ...(isFile ? ['FILE'] : [])];
};

describe('completionsOf', () => {
  it.each<[string[], string[]]>([
    [['val'], ['validate']],
    [['--ver'], ['--version']],
    [
      ['nonsense', ''],
      [
        'run',
        'doctor',
        'inventory',
        'claims',
        'metadata',
        'seccomp',
        'log',
        'status',
        'validate',
        'convert',
        'completion',
      ],
    ],
    [['doctor', '--prob'], ['--problems-only']],
    [
      ['doctor', '-o', ''],
      ['table', 'json', 'yaml'],
    ],
    [['doctor', '--output', 'y'], ['yaml']],
    [['doctor', '--output=y'], ['--output=yaml']],
    [['doctor', '--output', '=', 'y'], ['yaml']],
    [
      ['doctor', '--output', '='],
      ['table', 'json', 'yaml'],
    ],
    [['validate', '-o', 's'], ['sarif']],
    [['validate', ''], ['FILE']],
    [['validate', '--strict', 'a.yaml', ''], ['FILE']],
    [['doctor', '--kubeconfig', ''], ['FILE']],
    [['doctor', ''], []],
    [
      ['completion', ''],
      ['bash', 'zsh', 'fish'],
    ],
    [['run', '--log-level', 'd'], ['debug']],
  ])('completes a command line after %j', (words, expected) => {
    expect(valuesAfter(createProgram(), ...words)).toEqual(expected);
  });

  it('omits hidden flags', () => {
    const hidden = createProgram().commands.flatMap((command) =>
      command.options.filter((option) => option.hidden).map((option) => [command.name(), option.long ?? ''] as const),
    );
    expect(hidden.length).toBeGreaterThan(0);
    for (const [command, flag] of hidden) expect(valuesAfter(createProgram(), command, flag)).not.toContain(flag);
  });

  it("prints candidates for kubectl in cobra's format, and a last line that lets kubectl complete file names", () => {
    expect(formatCompletions(completionsOf(createKubectlPlugin(), ['doctor', '--prob']))).toBe(
      '--problems-only\tprint problems only\n:4\n',
    );
    expect(formatCompletions(completionsOf(createKubectlPlugin(), ['validate', 'x']))).toBe(':0\n');
  });
});

describe('completion scripts', () => {
  /** A folder with the command of this name. */
  function withCommand(name: string, args: string) {
    const dir = tempDir();
    const path = join(dir.path, name);
    writeFileSync(path, `#!/bin/sh\nexec ${process.execPath} ${main} ${args} "$@"\n`);
    chmodSync(path, 0o755);
    return dir;
  }

  it('complete commands, flags and values in bash', { timeout: 120_000 }, () => {
    using dir = withCommand('netdra', '');
    const complete = (...words: string[]) => {
      const quoted = ['netdra', ...words].map((word) => `'${word}'`).join(' ');
      const script = `source /dev/stdin <<'END'\n${completionScripts.bash}END
COMP_WORDS=(${quoted}); COMP_CWORD=${words.length}; _netdra; printf '%s\\n' "\${COMPREPLY[@]}"`;
      const env = { ...process.env, PATH: `${dir.path}:${process.env.PATH}` };
      return execFileSync('bash', ['-c', script], { encoding: 'utf8', env, stdio: 'pipe' }).trimEnd().split('\n');
    };
    expect(complete('validate', '--output', '=', '')).toEqual(['table', 'json', 'yaml', 'github', 'sarif']);
    expect(complete('val')).toEqual(['validate']);
  });

  it('are valid in the language of their shell', () => {
    execFileSync('bash', ['-n'], { input: completionScripts.bash });
    execFileSync('sh', ['-n'], { input: completionScripts.kubectl });
    for (const shell of ['bash', 'zsh', 'fish'] as const) {
      expect(completionScripts[shell]).toContain(`netdra completion ${shell} -- `);
    }
  });
});
