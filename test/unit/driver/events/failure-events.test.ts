import { describe, expect, it } from 'vitest';
import type { PluginHandlers } from '../../../../nri/index.ts';
import {
  type EventReport,
  FailureEvents,
  withClaimEvents,
  withPodEvents,
} from '../../../../src/driver/events/index.ts';
import { DriverError, type StoredClaim } from '../../../../src/driver/model/index.ts';
import { KubeError } from '../../../../src/framework/kube/index.ts';
import type { AllocatedClaim, DraPlugin } from '../../../../src/framework/kubeletplugin/index.ts';

const identity = { namespace: 'apps', name: 'fast-net', uid: 'c-1' };
const pod = { namespace: 'apps', name: 'web-0', uid: 'p-1' };
const claim = {
  identity,
  object: { status: { reservedFor: [{ resource: 'pods', name: 'web-0', uid: 'p-1' }] } },
} as unknown as AllocatedClaim;

/** @param isAccepted whether an event is within the limit */
function record(isAccepted: (report: EventReport) => boolean = () => true) {
  const reports: EventReport[] = [];
  const events = new FailureEvents({
    report(report) {
      const is = isAccepted(report);
      if (is) reports.push(report);
      return is;
    },
  });
  /** `ResourceClaim fast-net DeviceLost` */
  const reported = () => reports.map(({ regarding: { kind, name }, reason }) => `${kind} ${name} ${reason}`);
  return { events, reports, reported };
}

const signal = new AbortController().signal;

describe('withClaimEvents', () => {
  const failing = (error: Error): DraPlugin => ({
    prepareResourceClaims: async () => new Map([['c-1', { error }]]),
    unprepareResourceClaims: async () => new Map([['c-1', error]]),
  });
  const error = new DriverError('device-in-use', 'it is prepared for claim apps/other', {
    hint: 'the device is free again when that claim is unprepared',
  });

  it('reports on claim and pod why the claim cannot be prepared', async () => {
    const { events, reports, reported } = record();
    await withClaimEvents(failing(error), events).prepareResourceClaims([claim], { signal });
    expect(reported()).toEqual(['ResourceClaim fast-net DeviceNotPrepared', 'Pod web-0 DeviceNotPrepared']);
    expect(reports[1]).toMatchObject({
      regarding: { apiVersion: 'v1', ...pod },
      related: { kind: 'ResourceClaim', ...identity },
      type: 'Warning',
      note: 'Devices of claim apps/fast-net cannot be prepared: it is prepared for claim apps/other (the device is free again when that claim is unprepared)',
    });
  });

  it('reports a failed unprepare only on the claim, since the pod may be gone', async () => {
    const { events, reported } = record();
    await withClaimEvents(failing(error), events).unprepareResourceClaims([identity], { signal });
    expect(reported()).toEqual(['ResourceClaim fast-net DeviceNotReturned']);
  });

  it('rethrows a failure of the whole call, and reports nothing on success', async () => {
    const { events, reported } = record();
    const broken: DraPlugin = {
      prepareResourceClaims: () => Promise.reject(error),
      unprepareResourceClaims: async () => new Map([['c-1', undefined]]),
    };
    const observed = withClaimEvents(broken, events);
    await observed.unprepareResourceClaims([identity], { signal });
    expect(reported()).toEqual([]);
    await expect(observed.prepareResourceClaims([claim], { signal })).rejects.toBe(error);
    expect(reported()).toHaveLength(2);
  });
});

describe('withPodEvents', () => {
  it('passes through NRI events that it does not handle itself', async () => {
    class Hooks {
      readonly #seen: unknown[] = [];
      postStartContainer(...call: unknown[]) {
        this.#seen.push(...call);
        return this.#seen;
      }
    }
    const handlers = withPodEvents(new Hooks() as PluginHandlers, record().events) as unknown as Hooks;
    expect(handlers.postStartContainer('pod', 'container')).toEqual(['pod', 'container']);
  });

  const sandbox = { ...pod, id: 's-1' } as never;
  const context = { timeoutMs: 2_000, signal };

  it('writes events on pods that the runtime has reported, until they are removed', async () => {
    const { events, reported } = record();
    const handlers = withPodEvents({ synchronize() {}, runPodSandbox() {}, removePodSandbox() {} }, events);
    await handlers.runPodSandbox?.(sandbox, context);
    events.notAttached(identity, ['p-1', 'p-2'], 'no such VF');
    expect(reported()).toEqual(['ResourceClaim fast-net DeviceNotAttached', 'Pod web-0 DeviceNotAttached']);
    await handlers.removePodSandbox?.(sandbox, context);
    events.notAttached(identity, ['p-1'], 'no such VF');
    expect(reported()).toHaveLength(3);
    await handlers.synchronize?.([sandbox], [], context);
    events.notAttached(identity, ['p-1'], 'no such VF');
    expect(reported()).toHaveLength(5);
  });

  it('reports on a pod why its container is rejected, and passes the rejection on', async () => {
    const { events, reports, reported } = record();
    const error = new Error('container main cannot have the metadata of claim apps/fast-net: no such VF');
    const handlers = withPodEvents({ createContainer: (): Promise<void> => Promise.reject(error) }, events);
    await expect(handlers.createContainer?.(sandbox, { name: 'main' } as never, context)).rejects.toBe(error);
    expect(reported()).toEqual(['Pod web-0 ContainerHeldBack']);
    expect(reports[0]?.note).toBe(error.message);
  });
});

describe('FailureEvents', () => {
  // B13
  it('still writes events on a pod with a new sandbox when its old sandbox is removed', () => {
    const { events, reported } = record();
    for (const id of ['s-1', 's-2']) events.sandboxSeen({ id, ...pod });
    events.sandboxGone({ id: 's-1', ...pod });
    events.notAttached(identity, ['p-1'], 'no such VF');
    expect(reported()).toContain('Pod web-0 DeviceNotAttached');
    events.sandboxGone({ id: 's-2', ...pod });
    events.notAttached(identity, ['p-1'], 'no such VF');
    expect(reported().filter((line) => line === 'Pod web-0 DeviceNotAttached')).toHaveLength(1);
  });

  it("reports a pod's wait for slow devices on the pod, not on its claims", () => {
    const { events, reports, reported } = record();
    // Also before the runtime has listed the sandbox.
    const place = { sandboxId: 's-1', podUid: 'p-1', podNamespace: pod.namespace, podName: pod.name };
    events.slowToAttach(place, identity, '4 of 8 devices are attached after 3 s');
    expect(reported()).toEqual(['Pod web-0 WaitingForDevices']);
    expect(reports[0]).toMatchObject({ type: 'Normal', related: { kind: 'ResourceClaim', ...identity } });
    expect(reports[0]?.note).toMatch(/^The containers wait until .*, one after the other: 4 of 8 devices/);
  });

  it('reports on the pods of a claim that they wait until the claim is prepared', () => {
    const { events, reports, reported } = record();
    const status = { reservedFor: [{ resource: 'pods', name: 'web-0', uid: 'p-1' }] };
    events.slowToPrepare({ identity, object: { status } } as never, '0 of 2 devices are prepared after 3 s');
    expect(reported()).toEqual(['Pod web-0 WaitingForDevices']);
    expect(reports[0]).toMatchObject({ type: 'Normal', action: 'Preparing', related: { name: identity.name } });
    expect(reports[0]?.note).toMatch(/^The pod waits until its devices are prepared, one after the other: 0 of 2/);
  });

  it('reports a container whose CPUs are on another NUMA node than its devices, on the claim and the pod', () => {
    const { events, reported, reports } = record();
    events.numaMisaligned(pod, identity, 'container main: its CPUs 2-3 are on NUMA node 1, and …');
    expect(reported()).toEqual(['ResourceClaim fast-net NumaMisaligned', 'Pod web-0 NumaMisaligned']);
    expect(reports[0]?.note).toMatch(
      /^Devices of claim apps\/fast-net are on another NUMA node .*: container main: its/,
    );
  });

  it('emits events on the claim and its pods if the status cannot be written', () => {
    const { events, reported, reports } = record();
    events.sandboxSeen({ id: 's-1', ...pod });
    events.statusNotWritten(identity, ['p-1'], new Error('status of claim apps/fast-net cannot be written'));
    expect(reported()).toEqual(['ResourceClaim fast-net StatusNotWritten', 'Pod web-0 StatusNotWritten']);
    expect(reports[0]?.note).toBe('status of claim apps/fast-net cannot be written');
  });

  const device = { pool: 'node-1', name: '0000-3b-02-1', pciAddress: '0000:3b:02.1', request: 'vf', config: {} };
  const attachment = { podUid: 'p-1', podNamespace: 'apps', podName: 'web-0', sandboxId: 's', netnsPath: '/n' };
  const held = [{ identity, podUids: ['p-1'], state: 'prepared', devices: [{ ...device, attachment }] }];
  const claims = held as unknown as StoredClaim[];

  it('reports a missing device of a pod, once per loss', () => {
    const { events, reported, reports } = record();
    events.devicesFound('node-1', [device.name], claims);
    expect(reported()).toEqual([]);
    events.devicesFound('node-1', [], claims);
    events.devicesFound('node-1', [], claims);
    expect(reported()).toEqual(['ResourceClaim fast-net DeviceLost', 'Pod web-0 DeviceLost']);
    expect(reports[0]?.note).toContain(
      'Device 0000-3b-02-1 (0000:3b:02.1) of claim apps/fast-net is no longer on the node',
    );
    events.devicesFound('node-1', [device.name], claims);
    events.devicesFound('node-1', [], claims);
    expect(reported()).toHaveLength(4);
  });

  it('reports a problem of the node on the Node object, once per occurrence', () => {
    const { events, reported, reports } = record();
    const unrestored = [{ device: { name: '0000-3b-02-1', pciAddress: '0000:3b:02.1' }, reason: 'vlan: EBUSY' }];
    const fault = new Error('inventory policy /etc/netdra/p.yaml is invalid: pfs: expected array');
    for (const _ of [1, 2]) {
      events.devicesUnrestored('node-1', unrestored as never);
      events.policyRejected('node-1', fault);
      events.slicesNotPublished('node-1', new Error('may not create resourceslices'));
    }
    const once = ['DeviceNotRestored', 'PolicyRejected', 'SlicesNotPublished'].map((reason) => `Node node-1 ${reason}`);
    expect(reported()).toEqual(once);
    expect(reports.map(({ note }) => note)).toEqual([
      'Device 0000-3b-02-1 (0000:3b:02.1) is unavailable: restoring it after its last claim failed: vlan: EBUSY',
      `The newest inventory policy is rejected; the previous one stays in force: ${fault.message}`,
      'ResourceSlices of this node are out of date: may not create resourceslices',
    ]);
    events.devicesUnrestored('node-1', []);
    events.policyRejected('node-1', undefined);
    events.slicesNotPublished('node-1', undefined);
    events.devicesUnrestored('node-1', unrestored as never);
    events.policyRejected('node-1', fault);
    events.slicesNotPublished('node-1', new Error('may not create resourceslices'));
    expect(reported()).toEqual([...once, ...once]);
    // The API server is away, and an event could not be written either.
    events.slicesNotPublished('node-1', new KubeError('api-unreachable', 'no answer', { retriable: true }));
    expect(reported()).toHaveLength(6);
  });

  it('delays events on node problems while the event limit of the node is reached', () => {
    let room = 1;
    const { events, reports } = record(() => room-- > 0);
    const faults = ['ens1', 'ens2'].map((subject) => ({
      name: 'no-carrier',
      subject,
      message: `${subject} has no carrier`,
    }));
    const notes = () => reports.splice(0).map(({ note }) => note);
    const look = (count: number, current = faults) => {
      room = count;
      events.cardsUnhealthy('node-1', current);
      return notes();
    };
    expect([look(1), look(0), look(2), look(2)]).toEqual([['ens1 has no carrier'], [], ['ens2 has no carrier'], []]);
    expect([look(1, []), look(2, []), look(2, [])]).toEqual([
      ['ens1 has recovered from no-carrier'],
      ['ens2 has recovered from no-carrier'],
      [],
    ]);
  });

  it('reports a hung device on the node, once, with its path and remedy', () => {
    const { events, reported, reports } = record();
    const hung = {
      device: '0000:3b:02.1',
      path: '/sys/bus/pci/devices/0000:3b:02.1/driver/unbind',
      text: '0000:3b:02.1',
    };
    events.devicesHung('node-1', []);
    events.devicesHung('node-1', [hung]);
    events.devicesHung('node-1', [hung]);
    expect(reported()).toEqual(['Node node-1 DeviceHung']);
    expect(reports[0]?.regarding).toEqual({ apiVersion: 'v1', kind: 'Node', name: 'node-1', uid: 'node-1' });
    expect(reports[0]?.note).toMatch(
      /^Device 0000:3b:02\.1 hangs: .* to \/sys\/bus\/pci\/devices\/0000:3b:02\.1\/driver\/unbind\./,
    );
    expect(reports[0]?.note).toContain('to resolve it, end the process that has the device open');
    events.devicesHung('node-1', []);
    events.devicesHung('node-1', [hung]);
    expect(reported()).toHaveLength(2);
  });

  it('reports the start and the end of a card problem on the Node, each once', () => {
    const { events, reports, reported } = record();
    const subject = 'PF ens1f0 (0000:3b:00.0)';
    const lost = { name: 'no-carrier' as const, subject, message: `${subject} has no carrier: check its cable.` };
    events.cardsUnhealthy('node-1', []);
    for (const _ of [1, 2]) events.cardsUnhealthy('node-1', [lost]);
    events.cardsUnhealthy('node-1', []);
    expect(reported()).toEqual(['Node node-1 DeviceUnhealthy', 'Node node-1 DeviceHealthy']);
    expect(reports.map(({ type, note }) => [type, note])).toEqual([
      ['Warning', lost.message],
      ['Normal', `${subject} has recovered from no-carrier`],
    ]);
  });
});
