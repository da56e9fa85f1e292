import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';

const main = fileURLToPath(new URL('../../../src/main.ts', import.meta.url));
const policy = 'apiVersion: netdra.dev/v1alpha1\nkind: InventoryPolicy\npfs: []\n';

/** Runs `netdra validate -` with text that comes in parts, each after a pause, as from a slow program in a pipe. */
async function validateSlowly(parts: string[]): Promise<{ code: number; output: string }> {
  const shell = ['(', ...parts.map((part) => `sleep 0.7; printf %s '${part}';`), `) | "$0" "$1" validate -`].join(' ');
  const child = spawn('sh', ['-c', shell, process.execPath, main], { stdio: ['ignore', 'pipe', 'inherit'] });
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text) => {
    output += text;
  });
  const [code] = await once(child, 'close');
  return { code, output };
}

describe('netdra validate -', () => {
  it('waits for input that another program writes late', async () => {
    expect(await validateSlowly([policy.slice(0, 40), policy.slice(40)])).toEqual({
      code: 0,
      output: '1 objects checked, 0 faults\n',
    });
  });

  it('fails on empty input', async () => {
    const { code, output } = await validateSlowly(['kind: Pod']);
    expect({ code, output }).toEqual({ code: 1, output: expect.stringMatching(/\n0 objects checked, 0 faults\n$/) });
  });
});
