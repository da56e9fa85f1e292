import { describe, expect, it } from 'vitest';
import {
  chooseStartGate,
  defaultHooklessHandlers,
  isHookless,
  type RuntimeHandlers,
  readRuntimeHandlers,
} from '../../../../../src/framework/metadata/gate/index.ts';

const runc: RuntimeHandlers = { names: ['', 'runc', 'crun'] };
const mixed: RuntimeHandlers = { names: ['', 'runc', 'kata-qemu', 'runsc'] };

it.each([
  ['auto', runc, 'hook', false, 'all runtime handlers of the node run hooks'],
  ['auto', mixed, 'file', false, 'these runtime handlers possibly ignore hooks: kata-qemu, runsc'],
  ['auto', 'unknown', 'hook', false, 'the runtime does not say which handlers it has'],
  ['auto', { unreadable: 'no way' }, 'file', true, 'runtime handlers cannot be read from the Node: no way'],
  ['hook', runc, 'hook', false, 'as configured'],
  ['hook', 'unknown', 'hook', false, 'as configured'],
  ['hook', { unreadable: 'no way' }, 'hook', false, 'as configured'],
  [
    'hook',
    mixed,
    'hook',
    true,
    'as configured, although these runtime handlers possibly ignore hooks, so that their containers do not wait: kata-qemu, runsc',
  ],
  ['file', runc, 'file', false, 'as configured'],
  ['file', { unreadable: 'no way' }, 'file', false, 'as configured'],
] as const)('chooseStartGate %s with %j: %s', (mode, handlers, gate, isDoubtful, reason) => {
  const known: RuntimeHandlers =
    typeof handlers === 'object' && 'names' in handlers ? { names: [...handlers.names] } : handlers;
  expect(chooseStartGate(mode, known, defaultHooklessHandlers)).toEqual({ gate, isDoubtful, reason });
});

describe('isHookless', () => {
  it('matches the usual names of gVisor and Kata only', () => {
    const names = ['runsc', 'runsc-kvm', 'gvisor', 'kata', 'kata-qemu', 'kata-clh'];
    for (const name of names) expect(isHookless(name, defaultHooklessHandlers), name).toBe(true);
    const others = ['', 'runc', 'crun', 'nvidia', 'youki', 'katana', 'my-kata', 'runscx'];
    for (const name of others) expect(isHookless(name, defaultHooklessHandlers), name).toBe(false);
  });

  it('matches patterns with an asterisk', () => {
    expect(isHookless('a.b', ['a.b'])).toBe(true);
    expect(isHookless('axb', ['a.b'])).toBe(false);
    expect(isHookless('a+b', ['a+*'])).toBe(true);
    expect(isHookless('', ['*'])).toBe(true);
    expect(isHookless('x-kata-y', ['*kata*'])).toBe(true);
    expect(isHookless('kata', [])).toBe(false);
  });
});

describe('readRuntimeHandlers', () => {
  const read = (answer: () => unknown) => {
    const request = async <T>({ path }: { path: string }): Promise<T> => {
      expect(path).toBe('/api/v1/nodes/node-1');
      return answer() as T;
    };
    return readRuntimeHandlers({ request }, 'node-1', AbortSignal.timeout(1000));
  };

  it('reads the runtime handlers that the kubelet reports', async () => {
    const features = { recursiveReadOnlyMounts: true };
    const status = { runtimeHandlers: [{ features }, { name: 'runc', features }, { name: 'kata' }] };
    expect(await read(() => ({ status }))).toEqual({ names: ['', 'runc', 'kata'] });
  });

  it.each([[{}], [{ status: {} }], [{ status: { runtimeHandlers: [] } }]])(
    'returns "unknown" for the Node %j, which reports no runtime handlers',
    async (node) => {
      expect(await read(() => node)).toBe('unknown');
    },
  );

  it('explains why the Node could not be read', async () => {
    const error = new Error('forbidden');
    const answer = await read(() => {
      throw error;
    });
    expect(answer).toEqual({ unreadable: 'forbidden' });
  });
});
