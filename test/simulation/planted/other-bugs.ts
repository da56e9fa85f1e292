import { writeFileSync } from 'node:fs';
import type { StoredDevice } from '../../../src/driver/model/index.ts';
import type { StoredView } from '../../../src/driver/nodeview/index.ts';
import { KubeError } from '../../../src/framework/kube/index.ts';
import type { NetworkDevice } from '../../../src/node/inventory/index.ts';
import { isNumaRequired } from '../numa.ts';
import { fault, pod } from './needs.ts';
import {
  all,
  altered,
  inCni,
  inControl,
  inHandlers,
  inHelper,
  inNamespaces,
  inPart,
  inPlugin,
  inPods,
  inRequests,
  inStore,
  onHost,
  onNamespaces,
  type PlantedBug,
  withoutTask,
} from './plant.ts';
import { fileOf, inContainers, textOf, without } from './plant-node.ts';

/** One bug of each of many kinds. */
export const otherBugs: readonly PlantedBug[] = [
  {
    name: 'settings-are-not-kept',
    what: 'what a PF has lost for a VF in a pod is not set again',
    needs: fault('settings lost'),
    plant: withoutTask('settings of VFs'),
  },
  {
    name: 'changes-in-pods-are-not-told',
    what: 'kernel settings that a process in a pod changes are in no event and no condition',
    needs: ({ faults }) => faults.some((each) => each.kind === 'settings lost' && each.by === 'pod'),
    plant: inNamespaces(() => ({ readSysctls: () => new Map() })),
  },
  {
    name: 'conditions-forgotten',
    what: 'a driver that starts does not know which conditions are in force',
    needs: fault('cable out'),
    plant: inStore((store) => {
      const own = new Set<string>();
      return {
        conditions: () => store.conditions().filter(({ condition }) => own.has(condition)),
        putCondition(condition) {
          own.add(condition.condition);
          store.putCondition(condition);
        },
      };
    }),
  },
  {
    name: 'silenced-without-a-mark',
    what: 'the links that were taken for lack of an LACP partner are not stored with their claims',
    needs: fault('partner lost'),
    plant: inStore((store) => ({
      putClaim({ devices, ...claim }, unrestored) {
        store.putClaim(
          { ...claim, devices: devices.map(({ isDisabledForLacp: _mark, ...device }) => device) },
          unrestored,
        );
      },
    })),
  },
  {
    name: 'mtu-is-not-restored',
    what: 'a VF keeps the MTU of its pod, or the one that its driver gives it',
    plant: onHost((host) => ({ setLink: (index, change) => host.setLink(index, without(change, 'mtuBytes')) })),
  },
  {
    name: 'interface-stays-down',
    what: 'the interface of a VF is moved into its pod and not set up there',
    plant: inPods((connection) => ({ setLink: (index, change) => connection.setLink(index, without(change, 'up')) })),
  },
  {
    name: 'configured-once',
    what: 'a VF whose PF was reset is attached without the settings that its claim asks for',
    needs: fault('reset card'),
    plant: inControl((control) => {
      const known = new Set<string>();
      return {
        async configure(address, wanted, before) {
          const key = JSON.stringify([address.pciAddress, wanted]);
          if (known.has(key)) return;
          await control.configure(address, wanted, before);
          known.add(key);
        },
        async restore(address, before, options) {
          known.clear();
          return await control.restore(address, before, options);
        },
      };
    }),
  },
  {
    name: 'failing-claim-holds-up-others',
    what: 'a claim that cannot be attached keeps the other claims of its pod out of the sandbox',
    needs: pod(({ claims }) => claims.some(({ isBroken }) => isBroken)),
    plant: (ports, directories) => {
      const failed = new Set<string>();
      return all(
        inCni((cni) => ({
          add: (attachment, options) =>
            cni.add(attachment, options).catch((error: unknown) => {
              failed.add(attachment.netnsPath);
              throw error;
            }),
        })),
        onHost((host) => ({
          async setLink(index, change) {
            if (change.netns !== undefined && failed.has(`${change.netns.path}`))
              throw new Error('another claim fails');
            await host.setLink(index, change);
          },
        })),
      )(ports, directories);
    },
  },
  {
    name: 'refusal-ignored',
    what: 'a container without start gate is created although its claim is not ready, or in another pod',
    needs: (plan) =>
      plan.settings[0].gate === 'file' && plan.settings[0].metadata && pod((_pod, next) => next?.shares === true)(plan),
    plant: inHandlers((handlers) => ({
      async createContainer(...call) {
        try {
          await handlers.createContainer?.(...call);
        } catch {
          // It goes on.
        }
      },
    })),
  },
  {
    name: 'attachment-stored-late',
    what: 'the place of a VF is stored after the VF was moved there',
    plant: inStore((store, { clock }) => ({
      setAttachments(uid, changes) {
        void clock.sleep(50).then(() => store.setAttachments(uid, changes));
      },
    })),
  },
  {
    name: 'deleted-before-restored',
    what: 'a claim is deleted from the store before its VFs are restored',
    plant: inStore((store) => ({
      setState(uids, state) {
        if (state !== 'unpreparing') return store.setState(uids, state);
        for (const uid of uids) store.deleteClaim(uid);
      },
    })),
  },
  {
    name: 'failed-restore-forgotten',
    what: 'a VF that cannot be restored is offered as if it was',
    needs: fault('card refuses', 'interfaces late', 'reset card'),
    plant: inStore((store) => ({
      deleteClaim: (uid) => store.deleteClaim(uid),
      putUnrestored: () => undefined,
    })),
  },
  {
    name: 'unreadable-store-is-empty',
    what: 'a store that cannot be read for a moment counts as one without claims',
    needs: ({ faults }) => faults.some((each) => each.kind === 'reads fail' && each.of === 'store'),
    plant: inStore((store) => {
      const orNone = <T>(read: () => T, none: T): T => {
        try {
          return read();
        } catch {
          return none;
        }
      };
      return {
        claim: (uid) => orNone(() => store.claim(uid), undefined),
        claims: () => orNone(() => store.claims(), []),
        claimsOfPod: (uid) => orNone(() => store.claimsOfPod(uid), []),
      };
    }),
  },
  {
    name: 'generation-given-twice',
    what: 'two contents of a metadata file have the same generation',
    plant: inStore(({ records }) => ({
      records: altered(records, {
        write: (dir, record) => records.write(dir, record.replaceAll(/"generation":\s*[2-9]/g, '"generation": 1')),
      }),
    })),
  },
  {
    name: 'written-in-two-steps',
    what: 'readers of a metadata file can see its first half',
    plant: inHelper((helper, _ports, directories) => ({
      async updateRequestMetadata(claim, request, devices, sandboxId) {
        const update = await helper.updateRequestMetadata(claim, request, devices, sandboxId);
        const file = fileOf(claim, directories, request.split('/')[0] ?? '', 'metadata.json');
        const text = textOf(file) ?? '';
        if (!update.isWritten || text === '') return update;
        writeFileSync(file, text.slice(0, text.length / 2));
        await _ports.clock.sleep(1);
        writeFileSync(file, text);
        return update;
      },
    })),
  },
  {
    name: 'addresses-read-too-early',
    what: 'the metadata of a pod lacks addresses that its interface has',
    plant: inPods((connection) => ({
      addresses: async (index) => (await connection.addresses(index)).slice(0, 1),
    })),
  },
  {
    name: 'rounds-without-end',
    what: 'a task of reconciliation requests the next round each time',
    plant: inPart('task', (task, { clock }) => ({
      ...task,
      async run(signal) {
        await task.run(signal);
        if (task.name !== 'VFs to restore') return;
        for (let count = 0; count < 1_000 && !signal.aborted; count++) {
          await clock.sleep(1);
          await task.run(signal);
        }
      },
    })),
  },
  {
    name: 'leases-stay',
    what: 'an address that a killed instance has leased is never released',
    plant: inCni(() => ({ cachedAttachments: async () => ({ attachments: [], problems: [] }) })),
  },
  {
    name: 'lease-of-each-attempt',
    what: 'each attempt to attach a VF leases another address, and the last one is released',
    plant: inCni((cni) => {
      let attempts = 0;
      return {
        ipamAdd: (attachment, options) =>
          cni.ipamAdd({ ...attachment, ifName: `${attachment.ifName}${attempts++}` }, options),
      };
    }),
  },
  {
    name: 'gate-stays-open',
    what: 'the start gate stays open when a VF has left its pod',
    needs: (plan) => plan.liveUpdates && pod(({ vfLeavesTo, exits }) => vfLeavesTo === 'own' && exits > 0)(plan),
    plant: inHelper((helper, _ports, directories) => ({
      async withdrawMetadata(claim, requests) {
        const gate = textOf(fileOf(claim, directories, 'gate'));
        await helper.withdrawMetadata(claim, requests);
        if (gate !== undefined) writeFileSync(fileOf(claim, directories, 'gate'), gate);
      },
    })),
  },
  {
    name: 'gate-never-ends',
    what: 'a container that waits for a claim of a deleted pod waits to the end of its time',
    needs: pod(({ isOnHost, claims, shares }) => isOnHost || shares || claims.some(({ isBroken }) => isBroken)),
    plant: inHelper(() => ({ endGate: async () => undefined })),
  },
  {
    name: 'prepare-starts-over',
    what: 'a second prepare, as by a kubelet that has restarted, undoes the first',
    plant: inPlugin((plugin) => ({
      async prepareResourceClaims(claims, context) {
        await plugin.unprepareResourceClaims(
          claims.map(({ identity }) => identity),
          context,
        );
        return await plugin.prepareResourceClaims(claims, context);
      },
    })),
  },
  {
    name: 'held-vf-not-offered',
    what: 'a VF that a claim holds is missing in its slice',
    plant: inRequests(async (request, send, { disk }) => {
      const { spec } = (request.body ?? {}) as { spec?: { devices?: { name: string }[] } };
      if (spec?.devices === undefined) return await send(request);
      const held = disk.store.claims().flatMap(({ devices }) => devices.map(({ name }) => name));
      const devices = spec.devices.filter(({ name }) => !held.includes(name));
      return await send({ ...request, body: { ...request.body, spec: { ...spec, devices } } });
    }),
  },
  {
    name: 'entries-are-not-removed',
    what: 'the status of a claim keeps the entries of devices that it has no more',
    plant: inRequests(async (request, send) => {
      const operations = request.body as unknown as { op: string; path: string }[];
      const isRemoval =
        Array.isArray(operations) && operations.some(({ op, path }) => op === 'remove' && /devices/.test(path));
      return isRemoval
        ? await send({ ...request, method: 'GET', path: request.path.replace(/\/status$/, '') })
        : await send(request);
    }),
  },
  {
    name: 'exception-in-an-event',
    what: 'an exception at the end of a connection ends the process',
    plant: inHandlers((handlers) => ({
      disconnected(error) {
        handlers.disconnected?.(error);
        throw new Error('the connection has ended');
      },
    })),
  },
  {
    name: 'unreachable-means-deleted',
    what: 'a pod that cannot be read from the API server counts as deleted',
    needs: ({ apiErrorRate, faults }) => apiErrorRate > 0 || faults.some(({ kind }) => kind === 'API server away'),
    plant: inRequests(async (request, send) => {
      try {
        return await send(request);
      } catch (error) {
        if (request.method !== 'GET' || !/\/pods\//.test(request.path)) throw error;
        throw new KubeError('api-not-found', 'pod not found', { httpStatus: 404 });
      }
    }),
  },
  {
    name: 'damaged-spec-stays',
    what: 'a CDI spec that something else has damaged is not made again',
    needs: ({ faults }) => faults.some((each) => each.kind === 'damage file' && each.of === 'CDI spec'),
    plant: inHelper(() => ({ restoreMetadata: async () => [] })),
  },
  {
    name: 'out-of-files-means-gone',
    what: 'a network namespace that cannot be opened for lack of descriptors counts as gone',
    needs: ({ faults }) => faults.some((each) => each.kind === 'reads fail' && each.of === 'files'),
    plant: onNamespaces((networks) => {
      const open: typeof networks.open = (path) => {
        try {
          return networks.open(path);
        } catch {
          return undefined;
        }
      };
      const isGone: typeof networks.isGone = (path) => {
        using found = open(path);
        return found === undefined;
      };
      return { open, isGone };
    }),
  },
  {
    name: 'cpus-are-not-seen',
    what: 'a container with CPUs of its own counts as one without',
    needs: pod(({ cpus, claims }) => cpus.length > 0 && claims.some(isNumaRequired)),
    plant: inContainers((cpu) => ({ ...cpu, cpus: '' })),
  },
  {
    name: 'shared-cpus-count',
    what: 'a container counts as having for itself the CPUs that all share',
    needs: pod(({ cpus, claims }) => cpus.length === 0 && claims.some(isNumaRequired)),
    plant: inContainers((cpu) => ({ ...cpu, shares: 4096 })),
  },
  {
    name: 'write-in-vain-is-final',
    what: 'the number of VFs is written once only, though no VFs came of it',
    needs: ({ writesInVain = 0 }) => writesInVain > 0,
    plant: (ports) => {
      let isWritten = false;
      const open = ports.kernel.openCard as NonNullable<typeof ports.kernel.openCard>;
      const openCard: typeof open = (...options) => {
        const card = open(...options);
        const setNumVfs: typeof card.sysfs.setNumVfs = async (...call) => {
          if (!isWritten) await card.sysfs.setNumVfs(...call);
          isWritten = true;
        };
        return { ...card, sysfs: altered(card.sysfs, { setNumVfs }) };
      };
      return { ...ports, kernel: { ...ports.kernel, openCard } };
    },
  },
  {
    name: 'waits-are-not-said',
    what: 'events that are no warnings are not written',
    needs: fault('devices slow'),
    plant: inRequests(async (request, send) => {
      return (request.body as { type?: string } | undefined)?.type === 'Normal' ? {} : await send(request);
    }),
  },
  {
    name: 'claims-not-shown',
    what: 'what a node shows is not written any more when claims hold its devices',
    plant: inRequests(async (request, send) => {
      const { status } = (request.body ?? {}) as { status?: StoredView };
      return request.method === 'PATCH' && status !== undefined && status.claims.length > 0 ? {} : await send(request);
    }),
  },
  {
    name: 'guarantees-not-counted',
    what: 'what the VFs of other claims are guaranteed is not counted when a claim is prepared',
    needs: ({ bandwidth }) => bandwidth?.isCounted === false,
    plant: inStore((store) => ({
      claims: () => store.claims().map((claim) => ({ ...claim, devices: claim.devices.map(withoutGuarantee) })),
    })),
  },
  {
    name: 'withdrawn-in-the-background',
    what: 'a VF is detached while what containers find of it is still being withdrawn',
    plant: inHelper((helper, { clock }) => ({
      withdrawMetadata: async (...call) => void clock.sleep(20).then(() => helper.withdrawMetadata(...call)),
    })),
  },
  {
    name: 'name-of-the-pod-on-the-host',
    what: 'a VF comes to the host under the name that it has in its pod, and is renamed there',
    plant: inPods((connection) => ({
      setLink: (index, change) =>
        connection.setLink(index, change.netns === undefined ? change : without(change, 'name')),
    })),
  },
  {
    name: 'changes-are-not-followed',
    what: 'with live updates, a change of an interface in its pod is seen by the next round of reconciliation only',
    needs: (plan) => plan.liveUpdates && pod(({ mutations }) => mutations > 0)(plan),
    plant: inNamespaces(() => ({ watch: () => ({ [Symbol.dispose]: () => undefined }) })),
  },
  {
    name: 'tentative-means-none',
    what: 'addresses whose duplicate address detection is under way count as absent, and nothing reads them again',
    needs: ({ hasIpv6, liveUpdates }) => hasIpv6 && !liveUpdates,
    plant: inPods((connection) => ({
      addresses: async (index) => (await connection.addresses(index)).filter(({ tentative }) => !tentative),
    })),
  },
  {
    name: 'trust-is-not-set',
    what: 'a VF is not trusted although its claim asks for that',
    needs: pod(({ claims }) => claims.some(({ config }) => (config as { vf?: { trust?: true } }).vf?.trust)),
    plant: inControl((control) => ({
      async configure(address, { vf: { trust: _, ...vf } = {}, ...wanted }, before) {
        await control.configure(address, { ...wanted, vf }, before);
      },
    })),
  },
  {
    name: 'stop-is-answered-first',
    what: 'the runtime goes on stopping a sandbox while VFs are still being detached from it',
    plant: inHandlers((handlers) => ({
      async stopPodSandbox(...call) {
        void handlers.stopPodSandbox?.(...call);
      },
    })),
  },
  {
    name: 'unrestored-until-the-next-start',
    what: 'a driver that starts forgets which VFs could not be restored',
    needs: fault('card refuses'),
    plant: inStore((store) => ({
      forgetUnrestoredOfEarlierBoots() {
        for (const { device } of store.unrestored()) store.deleteUnrestored(device);
      },
    })),
  },
  {
    name: 'plugins-end-by-themselves',
    what: 'a plugin that hangs is not killed when its sandbox ends',
    needs: ({ cniHangRate }) => cniHangRate > 0,
    plant: inCni((cni) => {
      const { signal } = new AbortController();
      return {
        add: (attachment) => cni.add(attachment, { signal }),
        ipamAdd: (attachment) => cni.ipamAdd(attachment, { signal }),
      };
    }),
  },
  {
    name: 'given-up-without-another-look',
    what: 'a claim that is to be unprepared is not looked at again when its turn comes: it may be that of another pod by then',
    needs: ({ lockedRate, faults }) =>
      lockedRate > 0 && faults.some((each) => 'isStateLost' in each && each.isStateLost),
    plant: inHelper((helper) => ({
      reclaim: (claim, _isOver, signal) => helper.reclaim(claim, async () => true, signal),
    })),
  },
];

function withoutGuarantee(device: StoredDevice): StoredDevice {
  const { bandwidth: _, ...offered } = device.offered as Extract<NetworkDevice, { kind: 'vf' }>;
  return { ...device, offered };
}
