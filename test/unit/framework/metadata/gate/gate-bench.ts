import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach } from 'vitest';
import { readGate } from '../../../../../src/framework/metadata/gate/gate.ts';
import type { ClaimMetadata } from '../../../../../src/framework/metadata/index.ts';
import { Bench } from '../bench.ts';
import { claim, documentOf, kernel, podUid, recordOf } from '../samples.ts';

export const record = recordOf(kernel);

export const { devices } = documentOf(kernel);

export const gate = { program: '/var/lib/kubelet/plugins/sriov.netdra.dev/bin/netdra-gate', timeoutSeconds: 100 };

export const [a, b] = ['sandbox-a', 'sandbox-b'];

export const request = 'data/dra-device-metadata/default_fast-net/vf';

export let bench: Bench;

export let metadata: ClaimMetadata;

export const gatePath = () => join(bench.dataDir, 'dra-device-metadata/default_fast-net/gate');

export const gateText = () => (existsSync(gatePath()) ? readFileSync(gatePath(), 'utf8') : undefined);

export const gateOf = () => readGate(bench.dataDir, claim);

/** The files that are hidden while there is nothing to say. */
export const hidden = () => [
  join(bench.path, request, 'metadata.json'),
  join(bench.path, request, 'metadata-kep.json'),
  join(bench.downwardApiDir, podUid, 'fast-net.vf.json'),
];

export const isBlank = (path: string) => readFileSync(path, 'utf8').trim() === '';

/** As a driver does it for a pod's sandbox. */
export async function serve(sandboxId: string) {
  await metadata.update(claim, 'vf', devices, sandboxId);
}

export async function prepareAndServe(sandboxId: string) {
  await metadata.prepare(record, new Map());
  await serve(sandboxId);
}

/** A driver with other options on the same node. */
export function restart(options?: Parameters<Bench['start']>[0]): void {
  metadata = bench.start(options);
}

/** Makes a node and a driver with a gate for each test of a file. */
export function useGate(): void {
  beforeEach(() => {
    bench = new Bench();
    metadata = bench.start({ gate });
  });
  afterEach(() => bench[Symbol.dispose]());
}
