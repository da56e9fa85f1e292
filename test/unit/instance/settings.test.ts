import { describe, expect, it } from 'vitest';
import { driverFlags } from '../../../e2e/node/driver-process.ts';
import { flagNames, flagOf } from '../../../src/instance/settings.ts';
import { createProgram } from '../../../src/program.ts';
import { defaultSettings } from '../../doubles/settings.ts';

describe('settings', () => {
  const run = createProgram().commands.find((command) => command.name() === 'run');

  it('have one flag each, and no other flag exists', () => {
    expect(run?.options.map(({ long }) => long)).toEqual(flagNames.map(flagOf));
    expect(flagNames.map(flagOf)).toEqual(expect.arrayContaining(['--http-tls-dir', '--reconcile-interval']));
  });

  it('are parsed back from their formatted arguments', async () => {
    let read: unknown;
    run?.action((options) => {
      read = options;
    });
    const settings = {
      ...defaultSettings(),
      nodeName: 'n',
      cniUses: [],
      reconcileIntervalMs: 1_500,
      liveUpdates: false,
      simulate: { pfs: 2, vfsPerPf: 4 },
      httpAddress: ':9797',
      startGate: 'file' as const,
    };
    await run?.parseAsync(driverFlags(settings), { from: 'user' });
    expect(read).toEqual(settings);
  });
});
