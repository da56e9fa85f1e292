import { afterEach, beforeAll, beforeEach, vi } from 'vitest';
import { buildTimeoutMs, checkedTool } from './checked-tool.ts';
import { ContainerRoot, runProgram } from './container-root.ts';

/** `netdra-metadata` with sanitizers. */
export let tool: string;
/** The root of a container, a new one for each test. */
export let root: ContainerRoot;

/** For the tests of the file that calls it. */
export function useToolBench(): void {
  // Programs with sanitizers are slow on a machine with other work.
  vi.setConfig({ testTimeout: 60_000 });
  beforeAll(() => {
    ({ tool } = checkedTool());
  }, buildTimeoutMs);
  beforeEach(() => {
    root = new ContainerRoot();
  });
  afterEach(() => root[Symbol.dispose]());
}

export const run = (...args: string[]) => runProgram(tool, ['--root', root.path, ...args]);

/** The file of the merged KEP's form for request `vf` of claim `nic`. */
export const nicFile = '/var/run/kubernetes.io/dra-device-attributes/resourceclaims/nic/vf/d.example-metadata.json';

/** What such a file has, with one device. */
export const nicDocument = (device: object = {}, version = 'v1beta1') => ({
  kind: 'DeviceMetadata',
  apiVersion: `metadata.resource.k8s.io/${version}`,
  metadata: { name: 'nic', namespace: 'default', uid: 'u', generation: 1 },
  requests: [{ name: 'vf', devices: [{ driver: 'd.example', pool: 'p', name: 'dev', ...device }] }],
});
