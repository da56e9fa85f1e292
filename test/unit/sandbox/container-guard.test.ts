import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Container, PodSandbox } from '../../../nri/index.ts';
import { Store, type StoredDevice } from '../../../src/driver/index.ts';
import { ContainerGuard } from '../../../src/sandbox/container-guard.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

const identity = { namespace: 'ns', name: 'nic', uid: 'claim-1' };
const pod = { id: 'sandbox-2', name: 'web', namespace: 'ns', uid: 'pod-1' } as PodSandbox;
const attachment = { podUid: 'pod-1', sandboxId: 'sandbox-2', netnsPath: '/run/netns/2' };
const device: StoredDevice = {
  pciAddress: '0000:01:10.0',
  pfAddress: '0000:01:00.0',
  vfIndex: 0,
  pool: 'node',
  name: '0000-01-10-0',
  request: 'vf',
  config: {},
};

function container(...sources: string[]): Container {
  const mounts = sources.map((source) => ({ source, destination: '/x', type: '', options: ['ro', 'bind'] }));
  return { name: 'app', mounts } as Partial<Container> as Container;
}

describe('ContainerGuard', () => {
  let dir: ReturnType<typeof tempDir>;
  let store: Store;
  const reasons = new Map<string, string>();
  const missing = new Set<string>();
  let otherPods = 0;
  let guard: ContainerGuard;

  beforeEach(() => {
    dir = tempDir();
    store = new Store(join(dir.path, 'state.db'));
    reasons.clear();
    missing.clear();
    otherPods = 0;
    guard = new ContainerGuard({
      store,
      isFilePlace: (path) => path.startsWith('/files/'),
      isFileOf: ({ namespace, name }, path) => path.startsWith(`/files/${namespace}_${name}/`),
      exists: (path) => !missing.has(path),
      reasonOf: (sandboxId) => reasons.get(sandboxId),
      onOtherPod: () => otherPods++,
    });
  });
  afterEach(() => {
    store[Symbol.dispose]();
    dir[Symbol.dispose]();
  });

  function put(device: StoredDevice): void {
    store.putClaim({ identity, podUids: ['pod-1'], state: 'prepared', devices: [device] });
  }

  it('lets a container with its metadata be made', () => {
    put({ ...device, attachment, networkData: {} });
    expect(() => guard.check(pod, container('/files/ns_nic/vf/metadata.json'))).not.toThrow();
  });

  it.each([
    ['there is none yet', {}],
    ['the work is not done', { attachment }],
    ['it is of an earlier sandbox', { attachment: { ...attachment, sandboxId: 'sandbox-1' }, networkData: {} }],
  ])('refuses it while %s', (_, facts) => {
    put({ ...device, ...facts });
    expect(() => guard.check(pod, container('/files/ns_nic/vf/metadata.json'))).toThrow(
      'container app cannot have the metadata of claim ns/nic: its devices are not in this sandbox yet',
    );
  });

  it('refuses it while one of its files is missing, in words that the runtime would not find', () => {
    put({ ...device, attachment, networkData: {} });
    const path = '/files/ns_nic/vf/metadata.json';
    missing.add(path);
    const refusal = 'container app cannot have the metadata of claim ns/nic: it is not written yet';
    expect(() => guard.check(pod, container('/files/ns_nic/vf/other.json', path))).toThrow(refusal);
    expect(() => guard.check(pod, container('/files/ns_nic/vf/other.json'))).not.toThrow();
  });

  it('says why, when that is known', () => {
    put(device);
    reasons.set('sandbox-2', 'the VF is gone');
    expect(() => guard.check(pod, container('/files/ns_nic/vf/metadata.json'))).toThrow(/: the VF is gone$/);
  });

  it('has nothing against containers without that metadata', () => {
    put(device);
    expect(() => guard.check(pod, container('/files/ns_other/vf/metadata.json', '/etc'))).not.toThrow();
  });

  it('refuses it to a pod that the claim was reserved for after it was prepared for another one', () => {
    put({ ...device, attachment, networkData: {} });
    const other = { ...pod, uid: 'pod-2', id: 'sandbox-3' };
    expect(() => guard.check(other, container('/files/ns_nic/vf/metadata.json'))).toThrow(
      /cannot have the metadata of claim ns\/nic: its devices are prepared for another pod, and cannot be in two$/,
    );
    expect(otherPods).toBe(1);
    expect(() => guard.check(other, container('/etc'))).not.toThrow();
  });

  it('refuses those with metadata, and no others, while the store cannot be read', () => {
    store[Symbol.dispose]();
    expect(() => guard.check(pod, container('/etc/hosts'))).not.toThrow();
    expect(() => guard.check(pod, container('/files/ns_nic/vf/metadata.json'))).toThrow(
      /state store .* cannot be used/,
    );
  });
});
