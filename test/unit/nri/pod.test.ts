import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { formatContainer, parseContainer } from '../../../nri/container.ts';
import { formatPodSandbox, parsePodSandbox } from '../../../nri/pod.ts';
import { createNriCodec } from '../../../nri/wire.ts';

const { podSandboxRequest, synchronizeRequest } = createNriCodec();

const text = fc.string({ maxLength: 12, unit: 'grapheme' });
const dictionary = fc.dictionary(text, text, { maxKeys: 4, noNullPrototype: true });
const namespaces = fc.array(fc.record({ type: text, path: text }), { maxLength: 4 });
const pod = fc.record({
  id: text,
  name: text,
  uid: text,
  namespace: text,
  labels: dictionary,
  annotations: dictionary,
  runtimeHandler: text,
  pid: fc.nat({ max: 2 ** 32 - 1 }),
  ips: fc.array(text, { maxLength: 3 }),
  namespaces,
  cgroupParent: text,
  cgroupsPath: text,
});
const container = fc.record({
  id: text,
  podSandboxId: text,
  name: text,
  state: fc.constantFrom(
    'unknown' as const,
    'created' as const,
    'paused' as const,
    'running' as const,
    'stopped' as const,
  ),
  labels: dictionary,
  annotations: dictionary,
  args: fc.array(text, { maxLength: 3 }),
  env: fc.array(text, { maxLength: 3 }),
  mounts: fc.array(
    fc.record({ destination: text, type: text, source: text, options: fc.array(text, { maxLength: 2 }) }),
    { maxLength: 2 },
  ),
  createRuntimeHooks: fc.array(fc.record({ path: text, args: fc.array(text, { maxLength: 2 }) }), { maxLength: 2 }),
  namespaces,
  cgroupsPath: text,
  cpu: fc.record({ shares: fc.nat(), cpus: text, mems: text }),
  pid: fc.nat(),
  createdAtNs: fc.nat({ max: Number.MAX_SAFE_INTEGER }),
  startedAtNs: fc.nat(),
  finishedAtNs: fc.nat(),
  exitCode: fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 }),
  cdiDevices: fc.array(
    text.filter((name) => name !== ''),
    { maxLength: 3 },
  ),
});

describe('parsePodSandbox', () => {
  it('decodes a pod that the runtime encoded', () =>
    fc.assert(
      fc.property(pod, (original) => {
        const bytes = podSandboxRequest.encode({ pod: formatPodSandbox(original) });
        expect(parsePodSandbox(podSandboxRequest.decode(bytes).pod ?? {})).toEqual(original);
      }),
    ));

  it('fills in fields that a runtime omits', () => {
    expect(parsePodSandbox({})).toEqual({
      id: '',
      name: '',
      uid: '',
      namespace: '',
      labels: {},
      annotations: {},
      runtimeHandler: '',
      pid: 0,
      ips: [],
      namespaces: [],
      cgroupParent: '',
      cgroupsPath: '',
    });
  });

  it('skips fields of runtimes newer than this code', () => {
    const known = podSandboxRequest.encode({ pod: { id: 'a' } });
    const unknown = Buffer.from([0xfa, 0x3e, 3, 1, 2, 3, 0xf8, 0x3e, 5]);
    const inner = Buffer.concat([known.subarray(2), unknown]);
    expect(podSandboxRequest.decode(Buffer.concat([Buffer.from([0x0a, inner.length]), inner, unknown]))).toEqual({
      pod: { id: 'a' },
    });
  });

  it('keeps labels that are named like members of a JavaScript object', () => {
    const key = Buffer.from('__proto__');
    const entry = Buffer.concat([Buffer.from([0x0a, key.length]), key, Buffer.from([0x12, 1, 0x78])]);
    const inner = Buffer.concat([Buffer.from([0x2a, entry.length]), entry]);
    const bytes = Buffer.concat([Buffer.from([0x0a, inner.length]), inner]);
    const { labels } = parsePodSandbox(podSandboxRequest.decode(bytes).pod ?? {});
    expect(Object.getPrototypeOf(labels)).toBe(Object.prototype);
    expect(({} as Record<string, unknown>).x).toBeUndefined();
  });
});

describe('parseContainer', () => {
  it('decodes a container that the runtime encoded', () =>
    fc.assert(
      fc.property(container, (original) => {
        const bytes = synchronizeRequest.encode({ containers: [formatContainer(original)] });
        expect(synchronizeRequest.decode(bytes).containers?.map(parseContainer)).toEqual([original]);
      }),
    ));

  it('maps unknown states to unknown', () => {
    expect(parseContainer({ state: 77 }).state).toBe('unknown');
  });
});
