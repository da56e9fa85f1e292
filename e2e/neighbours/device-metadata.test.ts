import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import fc from 'fast-check';
import { beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { cacheFolder } from '../../scripts/packages/cache-folder.ts';
import type { AllocatedClaim, PrepareResult } from '../../src/framework/kubeletplugin/index.ts';
import { encodeObject, encodeVersions } from '../../src/framework/metadata/document/codec.ts';
import { formatGoJson } from '../../src/framework/metadata/document/json-stream.ts';
import { hostPath } from '../../src/framework/metadata/files/host-file.ts';
import {
  baseRequest,
  ClaimMetadata,
  type DeviceMetadata,
  layouts,
  type MetadataDocument,
  readMetadataFile,
} from '../../src/framework/metadata/index.ts';
import { defined } from '../../src/lib/defined.ts';
import { testDriver } from '../../test/doubles/objects.ts';
import { Bench } from '../../test/unit/framework/kubeletplugin/bench.ts';
import * as arbitraries from '../../test/unit/framework/metadata/arbitraries.ts';
import { documentOf, place, recordOf, samples } from '../../test/unit/framework/metadata/samples.ts';
import { ensureGoPrograms } from '../go/build.ts';
import { deviceMetadata } from './programs.ts';

const names = Object.keys(samples);
const sampleOf = (name: string) => samples[name] ?? expect.fail(`no sample ${name}`);

describe.each(deviceMetadata)(
  'compatibility with k8s.io/dynamic-resource-allocation v$version',
  ({ module, writes, validates }) => {
    let program: string;
    beforeAll(async () => {
      program = join(await ensureGoPrograms(cacheFolder(process.env), module, console.error), 'device-metadata');
    });

    /** @throws Error with the program's stderr */
    function runGo(args: string[], input = ''): string {
      const { status, stdout, stderr } = spawnSync(program, args, { input, encoding: 'utf8', maxBuffer: 2 ** 26 });
      if (status !== 0) throw new Error(stderr);
      return stdout;
    }

    /** Each file as decoded by Kubernetes, with the errors of its validation. */
    function readByGo(paths: string[]): unknown[] {
      return runGo(['read', ...paths])
        .trim()
        .split('\n')
        .map(parseExact);
    }

    const expectedOf = (document: MetadataDocument) => {
      // The helper also writes it, for a claim with an empty annotation.
      const isInvalid = validates && document.podClaimName === '';
      const invalid = expect.stringMatching(/^podClaimName: Invalid value: "": [^\n]+$/);
      return { document: asGoPrints(document), ...(isInvalid ? { invalid } : {}) };
    };

    /** Has the kubeletplugin helper prepare the claim of a document, then update its request once for each list. */
    function writeByGo(dataDir: string, document: MetadataDocument, updates: DeviceMetadata[][]): void {
      const { claim, podClaimName, request, devices } = document;
      const annotations = podClaimName === undefined ? {} : { 'resource.kubernetes.io/pod-claim-name': podClaimName };
      const input = {
        driver: devices[0]?.driver,
        claim: { metadata: { ...claim, annotations }, status: { allocation: {} } },
        devices: devices.map((device) => asHelperDevice(request, device)),
        updates: updates.map((list) => ({ request, devices: list.map((device) => asHelperDevice(request, device)) })),
      };
      runGo(['write', dataDir], formatGoJson(input));
    }

    describe.each(names)('%s', (name) => {
      it.each(['v1', 'kep'] as const)(
        'the Go library decodes the layout %s of netdra, also after updates in place',
        async (layout) => {
          const dataDir = temporaryFolder();
          const sample = sampleOf(name);
          const { claim, request, devices } = documentOf(sample);
          const metadata = new ClaimMetadata({
            enabled: true,
            driver: place(sample).driver,
            dataDir,
            cdiDir: join(dataDir, 'cdi'),
            layouts: [layouts[layout]],
          });
          await metadata.prepare(recordOf(sample), new Map([[baseRequest(request), devices]]));
          await metadata.update(claim, request, devices.map(withLongAttributes));
          await metadata.update(claim, request, devices);
          const path = hostPath(layouts[layout].hostFile({ ...unusedDirs, dataDir }, place(sample)));
          // The rest of the longer content is overwritten with blanks.
          expect(readFileSync(path, 'utf8')).toMatch(/\}\n {100,}$/);
          const document = { ...documentOf(sample), generation: 3 };
          expect(readByGo([path])).toEqual([expectedOf(document)]);
          expect(await readMetadataFile(path)).toEqual(document);
        },
      );

      it('the Go helper writes the same bytes to the same paths as netdra', async () => {
        const dataDir = temporaryFolder();
        const sample = sampleOf(name);
        const document = documentOf(sample);
        writeByGo(dataDir, document, []);
        const path = hostPath(layouts.v1.hostFile({ ...unusedDirs, dataDir }, place(sample)));
        expect(readFileSync(path, 'utf8')).toBe(writes.map((version) => encodeObject(document, version)).join(''));
        expect(await readMetadataFile(path)).toEqual(document);
        const [cdiFile = ''] = readdirSync(join(dataDir, 'cdi'));
        const [device] = JSON.parse(readFileSync(join(dataDir, 'cdi', cdiFile), 'utf8')).devices;
        expect(device.containerEdits.mounts.map((mount: { containerPath: string }) => mount.containerPath)).toEqual(
          layouts.v1.containerPaths(place(sample)),
        );
      });

      it('netdra reads metadata files that the Go helper has updated', async () => {
        const dataDir = temporaryFolder();
        const sample = sampleOf(name);
        const document = documentOf(sample);
        const before = { ...document, devices: document.devices.map(withLongAttributes) };
        writeByGo(dataDir, before, [[], document.devices]);
        const path = hostPath(layouts.v1.hostFile({ ...unusedDirs, dataDir }, place(sample)));
        expect(await readMetadataFile(path)).toEqual({ ...document, generation: 3 });
      });
    });

    it('the Go library decodes every generated document that netdra encodes', () => {
      const folder = temporaryFolder();
      const documents = fc.sample(arbitraries.document, { numRuns: 300, seed: 5304 });
      const paths = documents.map((_, index) => join(folder, `${index}.json`));
      for (const [index, path] of paths.entries()) writeFileSync(path, encodeVersions(documents[index]!));
      expect(readByGo(paths)).toEqual(documents.map(expectedOf));
    });

    describe('netdra and the Go helper in a rolling update', () => {
      const [goUid, ownUid] = [1, 2].map((n) => `0c3be3a3-4b2a-4b39-9a0c-6f2f4f2c000${n}`) as [string, string];
      const holdMs = 1_000;

      /** Our instance and the helper's, on the same directory. Both note when their driver prepares. */
      async function startBoth() {
        const bench = await Bench.start();
        onTestFinished(() => bench[Symbol.asyncDispose]());
        const notes: string[] = [];
        const prepareResourceClaims = async (claims: AllocatedClaim[]) => {
          notes.push('ours begins');
          await sleep(holdMs);
          notes.push('ours ends');
          return new Map(claims.map(({ identity }): [string, PrepareResult] => [identity.uid, { devices: [] }]));
        };
        await bench.startHelper({ prepareResourceClaims }, { podUid: ownUid });
        const { claim } = bench.addPod('theirs');
        const input = { driver: testDriver, claim, devices: [], podUid: goUid, holdMs };
        const prepareTheirs = async () => {
          const child = spawn(program, ['write', bench.dataDir()], { stdio: ['pipe', 'pipe', 'inherit'] });
          child.stdout.on('data', (data) => {
            const lines = String(data).trim().split('\n');
            notes.push(...lines.map((line) => line.replace('prepare', 'theirs')));
          });
          child.stdin.end(JSON.stringify(input));
          expect((await once(child, 'close'))[0]).toBe(0);
        };
        return { notes, prepareTheirs, prepareOurs: () => bench.preparePod('ours') };
      }

      it('calls of netdra wait while the Go helper prepares a claim', async () => {
        const { notes, prepareOurs, prepareTheirs } = await startBoth();
        const theirs = prepareTheirs();
        await vi.waitFor(() => expect(notes).toEqual(['theirs begins']), 5_000);
        await Promise.all([theirs, prepareOurs()]);
        expect(notes).toEqual(['theirs begins', 'theirs ends', 'ours begins', 'ours ends']);
      });

      it('calls of the Go helper wait while netdra prepares a claim', async () => {
        const { notes, prepareOurs, prepareTheirs } = await startBoth();
        const ours = prepareOurs();
        await vi.waitFor(() => expect(notes).toEqual(['ours begins']), 5_000);
        await Promise.all([ours, prepareTheirs()]);
        expect(notes).toEqual(['ours begins', 'ours ends', 'theirs begins', 'theirs ends']);
      });
    });

    it.each(names)(
      'the strict decoder of the example consumer in KEP-5304 accepts the layout kep of netdra: %s',
      (name) => {
        const document = documentOf(sampleOf(name));
        const path = join(temporaryFolder(), 'kep.json');
        writeFileSync(path, layouts.kep.encode({ ...sampleOf(name).content, document }) ?? '');
        expect(parseExact(runGo(['strict', path]))).toEqual({ document: asGoPrints(document) });
      },
    );

    it('the Go library rejects a truncated file', () => {
      const path = join(temporaryFolder(), 'cut.json');
      writeFileSync(path, encodeVersions(documentOf(sampleOf('kernel'))).slice(0, 500));
      expect(() => readByGo([path])).toThrow(/unexpected EOF/);
    });
  },
);

/** Used only by layouts with files in other places. */
const unusedDirs = { attributesDir: '/nowhere', downwardApiDir: '/nowhere' };

function temporaryFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'device-metadata-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(join(folder, 'cdi'));
  return folder;
}

/** Content longer than that of any sample, which a driver may write. */
function withLongAttributes(device: DeviceMetadata): DeviceMetadata {
  const names = Array.from({ length: 32 }, (_, index) => `long${index}`);
  return { ...device, attributes: Object.fromEntries(names.map((name) => [name, { string: 'x'.repeat(64) }])) };
}

/** A device in the form that Go decodes into the type `kubeletplugin.Device`, which has no JSON names. */
function asHelperDevice(request: string, { pool, name, attributes, networkData }: DeviceMetadata): object {
  const metadata = defined({ attributes, networkData });
  return { requests: [request], poolName: pool, deviceName: name, metadata };
}

/** A document in the shape of the type `v1alpha1.DeviceMetadata`. */
function asGoPrints({ claim, generation, podClaimName, request, devices }: MetadataDocument): object {
  const requests = [devices.length === 0 ? { name: request } : { name: request, devices }];
  return defined({
    kind: 'DeviceMetadata',
    apiVersion: 'metadata.resource.k8s.io/v1alpha1',
    metadata: { ...claim, generation },
    podClaimName,
    requests,
  });
}

/** Avoids our own decoder, which is under test. Integers too large for a number become a `bigint`. */
function parseExact(text: string): unknown {
  const revive = (_name: string, value: unknown, context?: { source?: string }) =>
    typeof value === 'number' && !Number.isSafeInteger(value) ? BigInt(context?.source ?? 'no source') : value;
  return JSON.parse(text, revive as (name: string, value: unknown) => unknown);
}
