import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createTrim, type DecodeOptions } from '../../../nri/decoded-fields.ts';
import { type Container, type PodSandbox, silentLogger } from '../../../nri/index.ts';
import { PluginService } from '../../../nri/plugin-service.ts';
import type { Reply } from '../../../nri/ttrpc/server.ts';
import { createNriCodec, pluginService, type WireContainer, type WirePod } from '../../../nri/wire.ts';
import { stage } from './support.ts';

const nri = createNriCodec();
const listed = { pod: 1, container: 2 };
const some: DecodeOptions = {
  omit: ['labels', 'annotations', 'args'],
  envNames: ['CLAIM_', 'CPUS_'],
  mountSources: ['/run/own/', '/etc/own/'],
};
/** As a ConfigMap of 1 MB gives them to a container. */
const manyVariables = Array.from({ length: 62_000 }, (_, n) => `${n.toString(36)}=`);

const texts = (maxLength: number) => fc.string({ unit: 'grapheme', maxLength });
const longTexts = fc.integer({ min: 100, max: 40_000 }).map((length) => 'x'.repeat(length));
const anyText = fc.oneof({ weight: 9, arbitrary: texts(20) }, longTexts);
const record = fc.dictionary(texts(5), anyText, { maxKeys: 3 }).map((all) => ({ ...all }));
const variable = fc
  .tuple(fc.constantFrom('CLAIM_', 'CPUS_', 'CLAIM', 'C', ''), fc.constantFrom('u-1', ''), anyText)
  .map(([prefix, rest, value]) => `${prefix}${rest}=${value}`);
const source = fc
  .tuple(fc.constantFrom('/run/own/', '/etc/own/', '/run/own', ''), anyText)
  .map(([prefix, rest]) => `${prefix}${rest}`);
const pod = fc.record<Required<Pick<WirePod, 'id' | 'labels' | 'annotations' | 'ips'>>>({
  id: anyText,
  labels: record,
  annotations: record,
  ips: fc.array(texts(9)),
});
const container = fc.record({
  id: anyText,
  labels: record,
  annotations: record,
  args: fc.array(anyText),
  env: fc.array(variable),
  mounts: fc.array(fc.record({ destination: anyText, source, options: fc.array(texts(9)) })),
  hooks: fc.record({ createRuntime: fc.array(fc.record({ path: texts(9), args: fc.array(anyText) })) }),
  pid: fc.nat(),
});

const trimmedPod = ({ labels: _, annotations: __, ...kept }: WirePod) => kept;
function trimmedContainer({ labels: _, annotations: __, args: ___, mounts = [], env = [], ...kept }: WireContainer) {
  const names = env.filter((each) => /^(CLAIM|CPUS)_/.test(each)).map((each) => each.slice(0, each.indexOf('=') + 1));
  return { ...kept, env: names, mounts: mounts.filter(({ source = '' }) => /^\/(run|etc)\/own\//.test(source)) };
}

/** Encodes, trims and decodes a container. */
function decoded(fields: WireContainer, options = some) {
  const bytes = createTrim(options, listed)(nri.containerRequest.encode({ container: fields }));
  return nri.containerRequest.decode(bytes).container;
}

describe('createTrim', () => {
  it('removes the fields that are not wanted, and all variables except the wanted names', () => {
    fc.assert(
      fc.property(fc.array(pod, { maxLength: 3 }), fc.array(container, { maxLength: 3 }), (pods, containers) => {
        const whole = nri.synchronizeRequest.encode({ pods, containers, more: true });
        const expected = { pods: pods.map(trimmedPod), containers: containers.map(trimmedContainer), more: true };
        expect(nri.synchronizeRequest.decode(createTrim(some, listed)(whole))).toEqual(
          nri.synchronizeRequest.decode(nri.synchronizeRequest.encode(expected)),
        );
      }),
      { numRuns: 100 },
    );
  });

  it.each<{ what: string; options: DecodeOptions; left: WireContainer }>([
    { what: 'nothing', options: {}, left: { id: 'c', args: ['a'], env: ['A=b', 'CLAIM_u=c'] } },
    { what: 'one field', options: { omit: ['args'] }, left: { id: 'c', env: ['A=b', 'CLAIM_u=c'] } },
    { what: 'all variables', options: { envNames: [] }, left: { id: 'c', args: ['a'] } },
    { what: 'other variables', options: { envNames: ['CLAIM_'] }, left: { id: 'c', args: ['a'], env: ['CLAIM_u='] } },
  ])('removes $what if asked to', ({ options, left }) => {
    expect(decoded({ id: 'c', args: ['a'], env: ['A=b', 'CLAIM_u=c'] }, options)).toEqual(left);
  });

  it('keeps at most 300 variable names of each prefix, and 64 bytes of each name', () => {
    const first = Array.from({ length: 1_000 }, (_, n) => `CPUS_${n}=0`);
    const { env = [] } = decoded({ env: [...first, `CLAIM_${'u'.repeat(1_000)}=x`, 'CLAIM_u-1=x'] }) ?? {};
    expect(env.slice(0, 300)).toEqual(first.slice(0, 300).map((each) => each.slice(0, -1)));
    expect(env.slice(300)).toEqual([`CLAIM_${'u'.repeat(58)}`, 'CLAIM_u-1=']);
  });

  it('drops all mounts of a container with more than 1,000 mounts, so that no wanted mount seems absent', () => {
    const wanted = { destination: '/d', source: '/run/own/a' };
    const others = Array.from({ length: 999 }, (_, n) => ({ destination: '/run/own/', source: `/${n}` }));
    expect(decoded({ id: 'c', mounts: [...others, wanted] })).toEqual({ id: 'c', mounts: [wanted] });
    expect(decoded({ id: 'c', mounts: [wanted, ...others, wanted] })).toEqual({ id: 'c' });
    expect(decoded({ id: 'c', mounts: others }, { mountSources: [] })).toEqual({ id: 'c' });
  });

  it('leaves invalid bytes in the message, which the decoder then rejects', () => {
    const trim = createTrim(some, listed);
    const broken = Buffer.concat([
      nri.containerRequest.encode({ container: { id: 'c', env: ['A=b'] } }),
      Buffer.of(0x0a, 9),
    ]);
    expect(() => nri.containerRequest.decode(trim(broken))).toThrow('cannot decode');
    const overlong = Buffer.concat([Buffer.of(0x12), Buffer.alloc(200, 0x80), Buffer.of(0x02)]);
    expect(trim(overlong)).toEqual(overlong);
    fc.assert(fc.property(fc.uint8Array({ maxLength: 60 }), (bytes) => void trim(Buffer.from(bytes))));
  });

  it('reduces a container with 62,000 variables to at most a hundred bytes', () => {
    const whole = nri.synchronizeRequest.encode({ containers: [{ id: 'c', env: manyVariables }] });
    expect(whole.length).toBeGreaterThan(300_000);
    expect(createTrim(some, listed)(whole).length).toBeLessThan(100);
  });
});

describe('a plugin that decodes only some fields of pods and containers', () => {
  const tenants = { id: 'c', podSandboxId: 'p', args: ['a'], env: ['A=b', 'CLAIM_u=c'] };
  const needed = { id: 'c', podSandboxId: 'p', args: [], env: ['CLAIM_u='] };

  it.each(['v0.8.0', 'v0.12.3'])('gets only these fields in the list and in events from NRI %s', async (nriVersion) => {
    const pods: PodSandbox[] = [];
    const containers: Container[] = [];
    const handlers = {
      synchronize: (listedPods: PodSandbox[], all: Container[]) => {
        pods.push(...listedPods);
        containers.push(...all);
      },
      runPodSandbox: (pod: PodSandbox) => void pods.push(pod),
      createContainer: (pod: PodSandbox, container: Container) => {
        pods.push(pod);
        containers.push(container);
      },
    };
    const pod = { id: 'p', labels: { a: 'b' } };
    const { runtime } = await stage({ handlers, decode: some }, { nriVersion, pods: [pod], containers: [tenants] });
    await runtime.waitForPlugin('test');
    await runtime.runPodSandbox({ ...pod, id: 'p2' });
    await runtime.createContainer(pod, tenants);
    expect(pods.map(({ id, labels }) => ({ id, labels }))).toEqual(['p', 'p2', 'p'].map((id) => ({ id, labels: {} })));
    expect(containers).toEqual(Array(2).fill(expect.objectContaining(needed)));
  });

  it('accepts a list of 70 MB', async () => {
    const seen: number[] = [];
    const service = new PluginService({
      codec: nri,
      handlers: { synchronize: (_, containers) => void seen.push(containers.length) },
      decode: some,
      logger: silentLogger,
      launched: false,
      signal: new AbortController().signal,
      onReady: () => undefined,
    });
    const synchronize = service.services.get(pluginService)?.get('Synchronize');
    const call = { timeoutMs: undefined, signal: new AbortController().signal, metadata: [] };
    const part = { containers: Array(11).fill({ id: 'c', env: manyVariables }), more: true };
    const payload = nri.synchronizeRequest.encode(part);
    let answer: Reply | undefined;
    for (let sent = 0; sent < 70_000_000; sent += payload.length) answer = await synchronize?.(payload, call);
    expect(answer?.payload).toEqual(nri.synchronizeResponse.encode({ more: true }));
    (await synchronize?.(Buffer.alloc(0), call))?.afterwards?.();
    await service.idle();
    expect(seen).toEqual([11 * Math.ceil(70_000_000 / payload.length)]);
  });
});
