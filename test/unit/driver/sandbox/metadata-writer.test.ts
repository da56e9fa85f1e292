import { describe, expect, it } from 'vitest';
import { Metrics, observeFiles } from '../../../../src/app/ops/index.ts';
import {
  type MetadataCalls,
  MetadataWriter,
  type MetadataWriterOptions,
} from '../../../../src/driver/sandbox/metadata-writer.ts';
import { readGate } from '../../../../src/framework/metadata/gate/gate.ts';
import type { ClaimIdentity } from '../../../../src/framework/metadata/index.ts';
import { systemClock } from '../../../../src/lib/clock.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { storedDevice } from '../../../doubles/stored-claims.ts';
import { Bench } from '../../framework/metadata/bench.ts';

const identity = { uid: 'u', namespace: 'apps', name: 'fast-net' };
const device = storedDevice();
const state = { interfaceName: 'net1', hardwareAddress: '02:00:00:00:00:02', ips: ['192.0.2.7/24'], tentative: false };

const readings = [{ request: 'vf', device, state }];

/** The framework's calls; each is noted. */
function fakeFiles(generation: number, calls: string[] = []): MetadataCalls {
  return {
    updateRequestMetadata: async (_, request, _devices, sandboxId) => {
      calls.push(`update ${request}${sandboxId === undefined ? '' : ` for ${sandboxId}`}`);
      return { generation, isWritten: generation > 0 };
    },
    withdrawMetadata: async () => undefined,
    openGate: async (_, sandboxId) => {
      calls.push(`open for ${sandboxId}`);
    },
    holdGate: async () => undefined,
    endGate: async () => undefined,
  };
}

/** A writer of a claim whose files get this generation. */
function open(files: MetadataCalls, onWritten: MetadataWriterOptions['onWritten'] = () => {}) {
  const logger = new RecordingLogger();
  const options = { driver: testDriver, files, attributesOf: () => ({}), onWritten, logger };
  return { writer: new MetadataWriter(options), logger };
}

describe('MetadataWriter', () => {
  const facts = { claim: 'apps/fast-net', request: 'vf', devices: ['dev-1'] };

  it('writes the metadata of each request, opens the start gate for the sandbox, and logs the generation', async () => {
    const calls: string[] = [];
    const { writer, logger } = open(fakeFiles(3, calls));
    await writer.write(identity, 's1', readings);
    expect(calls).toEqual(['update vf for s1']);
    expect(logger.lines).toMatchObject([{ message: 'metadata written', fields: { ...facts, generation: 3 } }]);
  });

  it('opens the start gate of a claim without VFs', async () => {
    const calls: string[] = [];
    await open(fakeFiles(1, calls)).writer.write(identity, 's1', []);
    expect(calls).toEqual(['open for s1']);
  });

  it('does not log that files were written if metadata is off', async () => {
    const { writer, logger } = open(fakeFiles(0));
    await writer.write(identity, 's1', readings);
    expect(logger.lines).toEqual([]);
  });

  it('writes no metadata of a request with an unreadable device, but writes and reports metadata of other requests', async () => {
    const calls: string[] = [];
    const onWritten = ({ name }: ClaimIdentity, _isSettled: boolean, isServed: boolean) =>
      void calls.push(`report ${name}${isServed ? ' as served' : ''}`);
    const { writer } = open(fakeFiles(1, calls), onWritten);
    const other = { ...device, pciAddress: '0000:3b:02.2', name: 'dev-2' };
    await writer.write(identity, 's1', [...readings, { request: 'vf', device: other, state: undefined }]);
    expect(calls).toEqual([]);
    await writer.write(identity, 's1', [...readings, { request: 'other', device: other, state: undefined }]);
    expect(calls).toEqual(['update vf', 'report fast-net']);
    const unchanged = open(fakeFiles(0, calls), onWritten).writer;
    await unchanged.write(identity, 's1', [...readings, { request: 'other', device: other, state: undefined }]);
    expect(calls.slice(2)).toEqual(['update vf']);
    await unchanged.write(identity, 's1', readings);
    expect(calls.slice(3)).toEqual(['update vf for s1', 'report fast-net as served']);
  });

  it('writes the metadata of all other requests if writing one request fails, and throws the error', async () => {
    const calls: string[] = [];
    const files = fakeFiles(1, calls);
    const full = new Error('no space left on device');
    const update: MetadataCalls['updateRequestMetadata'] = (claim, request, ...more) =>
      request === 'vf' ? Promise.reject(full) : files.updateRequestMetadata(claim, request, ...more);
    const { writer } = open({ ...files, updateRequestMetadata: update });
    const other = { ...device, pciAddress: '0000:3b:02.2', name: 'dev-2' };
    const both = [...readings, { request: 'other', device: other, state }];
    await expect(writer.write(identity, 's1', both)).rejects.toBe(full);
    expect(calls).toEqual(['update other for s1']);
  });

  it('reports whether addresses are still tentative', async () => {
    const seen: unknown[] = [];
    const { writer } = open(fakeFiles(1), ({ name }, isSettled) => seen.push([name, isSettled]));
    for (const tentative of [true, false]) {
      await writer.write(identity, 's1', [{ request: 'vf', device, state: { ...state, tentative } }]);
    }
    expect(seen).toEqual([
      ['fast-net', false],
      ['fast-net', true],
    ]);
  });

  it('succeeds even if the claim status cannot be updated', async () => {
    const err = new Error('the store is gone');
    const { writer, logger } = open(fakeFiles(3), () => {
      throw err;
    });
    await writer.write(identity, 's1', readings);
    expect(logger.lines.at(-1)).toMatchObject({
      message: 'cannot update claim status',
      fields: { claim: facts.claim, err },
    });
  });

  it('keeps the start gate open for a pod that runs without files if a later prepare adds files', async () => {
    using bench = new Bench();
    const gate = { program: '/opt/netdra-gate', timeoutSeconds: 100 };
    const start = (enabled: boolean) => {
      const metadata = bench.start({ layouts: ['v1'], enabled, gate });
      const update: MetadataCalls['updateRequestMetadata'] = (...call) => metadata.update(...call);
      return { metadata, writer: open({ ...fakeFiles(0), updateRequestMetadata: update }).writer };
    };
    const requests = { vf: { name: 'vf', devices: [{ pool: device.pool, name: device.name }] } };
    const off = start(false);
    await off.metadata.prepare({ claim: identity, requests }, new Map());
    await off.writer.write(identity, 's1', readings);
    expect(readGate(bench.dataDir, identity)).toEqual({ state: 'served', sandboxId: 's1' });
    const on = start(true);
    await on.metadata.prepare({ claim: identity, requests }, new Map());
    expect(readGate(bench.dataDir, identity)).toEqual({ state: 'served', sandboxId: 's1' });
    expect(await on.metadata.read(identity, 'vf')).toMatchObject({ generation: 1 });
  });

  it('logs and counts only actual writes, even after a restart', async () => {
    using bench = new Bench();
    const logger = new RecordingLogger();
    const metrics = new Metrics({ driver: testDriver, version: '1', metadataEnabled: true });
    const start = () => {
      const metadata = bench.start({ layouts: ['v1', 'kep'] });
      const update: MetadataCalls['updateRequestMetadata'] = (...call) => metadata.update(...call);
      const files = observeFiles({ ...fakeFiles(0), updateRequestMetadata: update }, metrics, systemClock);
      const options = { driver: testDriver, files, attributesOf: () => ({}), logger };
      return { metadata, writer: new MetadataWriter(options) };
    };
    const { metadata, writer } = start();
    const requests = { vf: { name: 'vf', devices: [{ pool: device.pool, name: device.name }] } };
    await metadata.prepare({ claim: identity, requests }, new Map());
    // The hook, the first look after it, the end of duplicate address detection and one more event.
    for (let look = 0; look < 4; look++) await writer.write(identity, 's1', readings);
    const changed = { ...state, ips: ['192.0.2.8/24'] };
    await writer.write(identity, 's1', [{ request: 'vf', device, state: changed }]);
    await start().writer.write(identity, 's1', [{ request: 'vf', device, state: changed }]);
    expect(logger.lines.map(({ message, fields }) => [message, fields.generation])).toEqual([
      ['metadata written', 1],
      ['metadata written', 2],
    ]);
    expect((await metrics.render()).text).toContain('dra_metadata_writes_total{driver_name="sriov.netdra.dev"} 2\n');
  });
});
