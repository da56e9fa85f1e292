import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect } from 'vitest';
import type { AllocatedClaim } from '../../../../src/framework/kubeletplugin/index.ts';
import { testDriver } from '../../../doubles/objects.ts';
import { DriverBench } from './driver-bench.ts';

export let bench: DriverBench;

export const refusal = (code: string, message?: unknown) => ({
  error: expect.objectContaining({ code, ...(message === undefined ? {} : { message }) }),
});

/** What the container gets: device nodes by path, from the CDI spec of a device. */
export function deviceNodes({ identity }: AllocatedClaim, device: string): { path: string; permissions: string }[] {
  const file = join(bench.cdiDir, `${testDriver}_device_${identity.uid}_${device}.json`);
  return JSON.parse(readFileSync(file, 'utf8')).devices[0].containerEdits.deviceNodes;
}

export const cdiFiles = () => (existsSync(bench.cdiDir) ? readdirSync(bench.cdiDir) : []);

/** Makes a bench for each test of a file. */
export function useDriverBench(): void {
  beforeEach(() => {
    bench = new DriverBench();
  });
  afterEach(() => bench[Symbol.dispose]());
}
