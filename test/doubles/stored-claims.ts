import type { Attachment, StoredClaim, StoredDevice } from '../../src/driver/model/index.ts';
import type { StoredClaims } from '../../src/driver/state/index.ts';

/** Returns the claims of a store that has those which `claims` returns. */
export function storedClaims(claims: () => readonly StoredClaim[]): StoredClaims {
  return {
    claims,
    claim: (uid) => claims().find(({ identity }) => identity.uid === uid),
    claimsOfPod: (podUid) => claims().filter(({ podUids }) => podUids.includes(podUid)),
    holderOf: (address) => claims().find(({ devices }) => devices.some(({ pciAddress }) => pciAddress === address)),
  };
}

/** A stored claim that is prepared, by default for no pod and without devices. */
export function storedClaim(parts: Partial<StoredClaim> = {}): StoredClaim {
  const identity = { namespace: 'apps', name: 'nic', uid: 'u' };
  return { identity, podUids: [], state: 'prepared', allocation: 'first', devices: [], ...parts };
}

/** Where a VF is in a pod, by default in the sandbox `s` of the pod `default/app`. */
export function storedAttachment(parts: Partial<Attachment> = {}): Attachment {
  return { podNamespace: 'default', podName: 'app', podUid: 'p', sandboxId: 's', netnsPath: '/run/netns/x', ...parts };
}

/** A stored device without configuration, by default a VF that was offered with nothing but its place. */
export function storedDevice(parts: Partial<StoredDevice> = {}): StoredDevice {
  const { pciAddress = '0000:3b:02.1', name = 'dev-1', pfAddress = '0000:3b:00.0', vfIndex = 1 } = parts;
  const place = { pciAddress, name, pfAddress, vfIndex, vendor: '8086', device: '154c' };
  const offered = { ...place, kind: 'vf' as const, simulated: false, rdmaDevices: [], iommuPeers: [] };
  return { driver: 'sriov.netdra.dev', pool: 'node-1', name, pciAddress, request: 'vf', config: {}, offered, ...parts };
}
