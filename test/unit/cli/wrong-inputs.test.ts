import { spawnSync } from 'node:child_process';
import { symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { wrongInputs } from '../../../scripts/wrong-inputs.ts';
import { validateFiles } from '../../../src/cli/validate.ts';
import { formatValidation, isValid } from '../../../src/cli/validate-reports.ts';
import { tempDir } from '../../doubles/temp-dir.ts';
import { plainTerminal } from './plain-terminal.ts';

const main = fileURLToPath(new URL('../../../src/main.ts', import.meta.url));
const inFiles = wrongInputs.filter(({ args, text }) => args[0] === 'validate' && text !== undefined);
const others = wrongInputs.filter((each) => !inFiles.includes(each));

describe('answers to wrong input', () => {
  it('are tested for many kinds of mistakes, each once', () => {
    expect(wrongInputs.length).toBeGreaterThan(40);
    expect(new Set(wrongInputs.map(({ what }) => what)).size).toBe(wrongInputs.length);
  });

  it.each(inFiles.map((each) => [each.what, each] as const))(
    'name the mistake, from netdra validate: %s',
    async (_, { args, text, message }) => {
      using dir = tempDir();
      const path = join(dir.path, 'FILE');
      writeFileSync(path, text ?? '');
      const options = { driverName: 'sriov.netdra.dev', openClaimFields: [], strict: args.includes('--strict') };
      const validation = await validateFiles([path], options);
      expect(formatValidation(plainTerminal, validation)).toContain(message);
      expect(isValid(validation)).toBe(false);
    },
  );

  // Each starts a process, which takes long on a busy machine.
  it.each(others.map((each) => [each.what, each] as const))(
    'name the mistake, from other commands: %s',
    { timeout: 240_000 },
    (_, wrong) => {
      using dir = tempDir();
      const program = join(dir.path, wrong.isPlugin ? 'kubectl-netdra.ts' : 'netdra.ts');
      symlinkSync(main, program);
      if (wrong.text !== undefined) writeFileSync(join(dir.path, 'FILE'), wrong.text);
      const env = { PATH: process.env.PATH, NODE_COMPILE_CACHE: process.env.NODE_COMPILE_CACHE };
      const { status, stdout, stderr } = spawnSync(process.execPath, [program, ...wrong.args], {
        cwd: dir.path,
        encoding: 'utf8',
        env,
      });
      expect(stdout + stderr).toContain(wrong.message);
      expect(status).toBe(wrong.exitCode);
    },
  );
});
