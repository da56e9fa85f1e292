import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { type Attachment, SandboxError } from '../../../../src/driver/model/index.ts';
import type { Failure } from '../../../../src/driver/sandbox/claim-progress.ts';
import { StartGuard } from '../../../../src/driver/sandbox/start-guard.ts';
import { Store } from '../../../../src/driver/state/index.ts';
import { ClaimMetadata, formatDeviceKey, layouts } from '../../../../src/framework/metadata/index.ts';
import { storedAttachment, storedClaim, storedDevice } from '../../../doubles/stored-claims.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

const identity = { namespace: 'ns', name: 'nic', uid: 'claim-1' };
const pod = { uid: 'pod-1', runtimeHandler: 'runc' };
/** The variable of a claim in containers. */
const variable = 'CLAIM_claim_1=ns/nic';
const gate = { path: '/gate', args: ['gate', '--claim-dir', '/data/dra-device-metadata/ns_nic'] };
const device = storedDevice({ pciAddress: '0000:01:10.0', name: 'dev' });
const gone = new SandboxError('vf-missing', 'the VF is gone');
const busy = new SandboxError('vf-busy', 'the VF is in another pod', { retriable: true });

const container = (env: string[], hooks = [gate]) => ({ name: 'app', env, createRuntimeHooks: hooks });
const place = storedAttachment({ podUid: pod.uid, sandboxId: 's1' });
const sandbox = (ready: boolean, failure?: Failure, isEnding = false) => ({
  facts: place,
  isReady: () => ready,
  isEnding,
  failureOf: () => failure,
});

describe('StartGuard', () => {
  let dir: ReturnType<typeof tempDir>;
  let store: Store;
  let otherPods = 0;
  let guard: StartGuard;
  /** UIDs of the claims whose containers wait by themselves. */
  let gated: Set<string>;

  beforeEach(() => {
    dir = tempDir();
    store = new Store(join(dir.path, 'state.db'));
    const options = { driver: 'd', dataDir: '/data', cdiDir: '/cdi', layouts: [layouts.v1], marker: 'CLAIM_' };
    const metadata = new ClaimMetadata({ enabled: true, ...options });
    otherPods = 0;
    gated = new Set([identity.uid]);
    guard = new StartGuard({
      store,
      metadata: {
        isGated: ({ uid }) => gated.has(uid),
        hasGateOf: metadata.hasGateOf.bind(metadata),
        isAnyUsedBy: metadata.isAnyUsedBy.bind(metadata),
        isUsedBy: metadata.isUsedBy.bind(metadata),
      },
      runsHooks: (handler) => handler !== 'runsc',
      onOtherPod: () => otherPods++,
    });
    store.putClaim(storedClaim({ identity, podUids: ['pod-1'], devices: [device] }));
  });
  afterEach(() => {
    store[Symbol.dispose]();
    dir[Symbol.dispose]();
  });

  it('does not reject a container that waits at the start gate of its claim', () => {
    guard.check(pod, container([variable]), sandbox(false));
    guard.check(pod, container([]), sandbox(false));
    guard.check(pod, container([variable]), sandbox(false, { error: busy, attempts: 2 }));
  });

  it('does not reject a container that waits at the gate while the network namespace is unknown', () => {
    const unknown = new SandboxError('netns-unknown', 'which network namespace?', { retriable: true });
    guard.check(pod, container([variable]), sandbox(false, { error: unknown, attempts: 9 }));
  });

  it('rejects, with the reason, a container whose VF cannot be attached', () => {
    const refusal = /^container app cannot start with claim ns\/nic: the VF is gone$/;
    expect(() => guard.check(pod, container([variable]), sandbox(false, { error: gone, attempts: 1 }))).toThrow(
      refusal,
    );
    expect(() => guard.check(pod, container([variable]), sandbox(false, { error: busy, attempts: 3 }))).toThrow(
      /the VF is in another pod$/,
    );
  });

  it('rejects a container while the VFs are leaving its sandbox, since nothing will open the gate', () => {
    expect(() => guard.check(pod, container([variable]), sandbox(false, undefined, true))).toThrow(
      /cannot start with claim ns\/nic: its devices are being detached from this sandbox$/,
    );
  });

  // B3: metadata off, the layout attributes-json alone, claims that an older version has prepared.
  it('rejects every container of the pod that does not have the start gate of the claim', () => {
    const refusal = 'container app cannot start with claim ns/nic: its devices are not in this sandbox yet';
    const other = { path: '/gate', args: ['gate', '--claim-dir', '/data/dra-device-metadata/ns_other'] };
    for (const hooks of [[], [other]]) {
      expect(() => guard.check(pod, container([], hooks), sandbox(false))).toThrow(refusal);
      expect(() => guard.check(pod, container([variable], hooks), sandbox(false))).toThrow(refusal);
    }
  });

  describe('after a VF of the claim left the sandbox', () => {
    const left = sandbox(false, { error: gone, attempts: 9 });
    const leave = (attachment: Partial<Attachment>) => {
      store.setAttachments(identity.uid, new Map([[formatDeviceKey(device), { ...place, ...attachment }]]));
    };
    beforeEach(() => leave({ wasServed: true }));
    const other = { path: '/hook', args: ['hook', '--claim-dir', '/elsewhere'] };

    it('lets containers start that do not use the claim, such as kubectl debug containers', () => {
      guard.check(pod, container([], []), left);
      guard.check(pod, container(['PATH=/bin', 'CLAIM_claim_2=ns/other'], [other]), left);
      // As after a restart of the driver, before the first attempt to attach the VF again.
      guard.check(pod, container([], []), sandbox(false));
    });

    it('rejects a container that uses the claim', () => {
      for (const used of [container([]), container([variable], [])]) {
        expect(() => guard.check(pod, used, left)).toThrow('the VF is gone');
      }
    });

    it('rejects a container that may use the claim, and every container while the sandbox ends', () => {
      expect(() => guard.check({ ...pod, runtimeHandler: 'runsc' }, container([], []), left)).toThrow('the VF is gone');
      expect(() => guard.check(pod, container([], []), { ...left, isEnding: true })).toThrow('are being detached');
      gated.clear();
      expect(() => guard.check(pod, container([], []), left)).toThrow('the VF is gone');
    });

    it('rejects every container if the claim was never served in this sandbox', () => {
      for (const attachment of [{}, { wasServed: true, sandboxId: 's0' } as const]) {
        leave(attachment);
        expect(() => guard.check(pod, container([], []), left)).toThrow('the VF is gone');
      }
    });
  });

  describe('if one claim of the pod has failed and another is ready', () => {
    const ready = { namespace: 'ns', name: 'other', uid: 'claim-2' };
    const otherGate = { path: '/gate', args: ['gate', '--claim-dir', '/data/dra-device-metadata/ns_other'] };
    /** The first claim has failed; the other one is ready. */
    const half = {
      facts: place,
      isReady: (uid: string) => uid === ready.uid,
      isEnding: false,
      failureOf: (uid: string) => (uid === identity.uid ? { error: gone, attempts: 9 } : undefined),
    };
    beforeEach(() => {
      const devices = [{ ...device, pciAddress: '0000:01:10.1', name: 'dev-2' }];
      store.putClaim(storedClaim({ identity: ready, podUids: ['pod-1'], devices }));
    });

    it('allows a container that has only the start gate of the ready claim', () => {
      guard.check(pod, container(['CLAIM_claim_2=ns/other'], [otherGate]), half);
      expect(() => guard.check(pod, container([variable], [gate, otherGate]), half)).toThrow(
        /claim ns\/nic: the VF is gone$/,
      );
    });

    it('rejects a container that uses the failed claim, or that may use it', () => {
      const kept = { ...pod, runtimeHandler: 'runsc' };
      expect(() => guard.check(kept, container([], [otherGate]), half)).toThrow('the VF is gone');
      expect(() => guard.check(pod, container([], []), half)).toThrow('the VF is gone');
      gated.clear();
      expect(() => guard.check(pod, container([], [otherGate]), half)).toThrow('the VF is gone');
    });

    it("lets a container wait for its own claim, although the pod's other claim has failed", () => {
      guard.check(pod, container([], [otherGate]), { ...half, isReady: () => false });
    });
  });

  it('rejects a container whose runtime does not run hooks', () => {
    const kept = { ...pod, runtimeHandler: 'runsc' };
    expect(() => guard.check(kept, container([variable]), sandbox(false))).toThrow('not in this sandbox yet');
    guard.check(kept, container([variable]), sandbox(true));
  });

  it('ignores containers of other pods that do not use the claim', () => {
    guard.check({ ...pod, uid: 'pod-2' }, container(['CLAIM_claim_2=ns/other', 'PATH=/bin'], []), sandbox(false));
  });

  it('rejects a container while the claim, passed to its pod, is not yet prepared for that pod', () => {
    store.putClaim(storedClaim({ identity, podUids: ['pod-1'], state: 'preparing', devices: [device] }));
    expect(() => guard.check(pod, container([variable]), sandbox(false))).toThrow(
      /cannot start with claim ns\/nic: the claim has passed to this pod, for which its devices are not prepared yet$/,
    );
    expect(otherPods).toBe(1);
  });

  it("rejects a container while the claim's earlier devices are restored and its new devices are not prepared", () => {
    store.putClaim(storedClaim({ identity, podUids: ['pod-1'], state: 'unpreparing', devices: [] }));
    expect(() => guard.check(pod, container([variable], []), sandbox(false))).toThrow('not prepared yet');
  });

  it("rejects a container that has the claim's gate while the devices of the claim's earlier pod are restored", () => {
    store.putClaim(storedClaim({ identity, podUids: ['pod-1'], state: 'unpreparing', devices: [] }));
    const next = { ...pod, uid: 'pod-2' };
    expect(() => guard.check(next, container([]), sandbox(false))).toThrow('its devices are prepared for another pod');
    expect(otherPods).toBe(1);
  });

  it.each([
    ["the claim's gate", container([])],
    ["the claim's variable, with metadata and start gate off", container([variable], [])],
  ])('rejects a container that has %s if the claim is prepared for another pod', (_, used) => {
    const next = { ...pod, uid: 'pod-2' };
    expect(() => guard.check(next, used, sandbox(false))).toThrow(
      /cannot start with claim ns\/nic: its devices are prepared for another pod, and a device cannot be in two pods$/,
    );
    expect(otherPods).toBe(1);
    guard.check(next, container(['PATH=/bin'], []), sandbox(false));
  });

  it('rejects a container that uses a claim of another pod, even together with a claim of its own pod', () => {
    const own = { namespace: 'ns', name: 'own', uid: 'claim-2' };
    const devices = [{ ...device, pciAddress: '0000:01:10.1', name: 'dev-2' }];
    store.putClaim(storedClaim({ identity: own, podUids: ['pod-2'], devices }));
    const both = container([variable, 'CLAIM_claim_2=ns/own']);
    expect(() => guard.check({ ...pod, uid: 'pod-2' }, both, sandbox(true))).toThrow(
      /claim ns\/nic: its devices are prepared for another pod/,
    );
  });

  it('ignores the stored claim of an earlier pod if a new claim has the same name', () => {
    const recreated = { ...identity, uid: 'claim-2' };
    const devices = [{ ...device, pciAddress: '0000:01:10.1', name: 'dev-2' }];
    store.putClaim(storedClaim({ identity: recreated, podUids: ['pod-2'], devices }));
    const next = { ...pod, uid: 'pod-2' };
    guard.check(next, container([]), sandbox(true));
    guard.check(next, container([]), sandbox(false));
    expect(otherPods).toBe(0);
    expect(() => guard.check({ ...pod, uid: 'pod-3' }, container([]), sandbox(true))).toThrow('for another pod');
  });

  it('lets the hook answer early only if all containers of the pod can wait at their start gate', () => {
    expect(guard.mayReturnEarly(pod)).toBe(false);
    const other = { namespace: 'ns', name: 'other', uid: 'claim-2' };
    const devices = [{ ...device, pciAddress: '0000:01:10.1', name: 'dev-2' }];
    const second = storedClaim({ identity: other, podUids: ['pod-2'], devices });
    store.putClaim({ ...second, state: 'preparing' });
    expect(guard.mayReturnEarly(pod)).toBe(false);
    store.putClaim(second);
    expect(guard.mayReturnEarly(pod)).toBe(true);
    expect(guard.mayReturnEarly({ ...pod, runtimeHandler: 'runsc' })).toBe(false);
    expect(guard.mayReturnEarly({ ...pod, uid: 'without claims' })).toBe(false);
    gated.clear();
    expect(guard.mayReturnEarly(pod)).toBe(false);
    gated.add(identity.uid);
    const attachment = storedAttachment({ podUid: 'pod-2', sandboxId: 's2' });
    store.setAttachments('claim-2', new Map([[formatDeviceKey(devices[0]!), attachment]]));
    expect(guard.mayReturnEarly(pod)).toBe(false);
    store[Symbol.dispose]();
    expect(guard.mayReturnEarly(pod)).toBe(false);
  });

  it('rejects, while the store is unreadable, only containers that have metadata', () => {
    store[Symbol.dispose]();
    guard.check(pod, container(['PATH=/bin'], []), sandbox(false));
    expect(() => guard.check(pod, container([variable]), sandbox(false))).toThrow(/state store .* cannot be used/);
  });
});
