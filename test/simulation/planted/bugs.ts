import { AsyncLocalStorage } from 'node:async_hooks';
import { closeSync, fchmodSync, openSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import type { PodSandbox } from '../../../nri/index.ts';
import type { StoredDevice, VfConfig } from '../../../src/driver/model/index.ts';
import { toVfWanted } from '../../../src/driver/vf/vf-wanted.ts';
import { formatGate } from '../../../src/framework/metadata/gate/gate.ts';
import { formatDeviceKey } from '../../../src/framework/metadata/index.ts';
import { KeyedMutex } from '../../../src/lib/keyed-mutex.ts';
import type { VfHardware, VfWanted } from '../../../src/node/sriov/index.ts';
import { fault, faultNearUpdate, pod, restartAtStart } from './needs.ts';
import { oldBugs } from './old-bugs.ts';
import { otherBugs } from './other-bugs.ts';
import {
  all,
  altered,
  inControl,
  inHandlers,
  inHelper,
  inLocks,
  inMetadata,
  inPart,
  inPlugin,
  inRequests,
  inSandboxes,
  inStore,
  onHost,
  onNamespaces,
  type Plant,
  type PlantedBug,
  withoutTask,
} from './plant.ts';
import { fileOf } from './plant-node.ts';
import { teardownBugs } from './teardown-bugs.ts';

/** The reset of a VF undoes a lot, and hides what else is not undone. */
const noReset = inPart('control', (control) => {
  const { restore } = control as VfHardware;
  return altered(control, {
    restore: (address, before) => restore.call(control as VfHardware, address, before, { reset: false }),
  });
});

/** The sandboxes that the runtime has shown, by id. */
function seenSandboxes(change: (seen: Map<string, PodSandbox>) => Plant): Plant {
  return (ports, directories) => {
    const seen = new Map<string, PodSandbox>();
    const note = (pod: PodSandbox) => void seen.set(pod.id, pod);
    const noting = inHandlers((handlers) => ({
      async runPodSandbox(pod, context) {
        note(pod);
        await handlers.runPodSandbox?.(pod, context);
      },
      async synchronize(pods, containers, context) {
        for (const pod of pods) note(pod);
        await handlers.synchronize?.(pods, containers, context);
      },
    }));
    return all(noting, change(seen))(ports, directories);
  };
}

/** Tells which pods a list of the runtime shows, with those of them that have containers. */
function whenListed(note: (pods: readonly string[], withContainers: ReadonlySet<string>) => void): Plant {
  return inHandlers((handlers) => ({
    synchronize(pods, containers, context) {
      const shown = pods.filter(({ id }) => containers.some(({ podSandboxId }) => podSandboxId === id));
      note(
        pods.map(({ uid }) => uid),
        new Set(shown.map(({ uid }) => uid)),
      );
      return handlers.synchronize?.(pods, containers, context);
    },
  }));
}

function isNothing({ driver, vf = {} }: VfWanted): boolean {
  return driver === undefined && Object.keys(vf).length === 0;
}

function devicesOf(store: Parameters<Parameters<typeof inStore>[0]>[0], uid: string): StoredDevice[] {
  return store.claim(uid)?.devices ?? [];
}

/** Defects of earlier versions, as the driver would behave with them, and one of each other kind. */
export const plantedBugs: readonly PlantedBug[] = [
  {
    name: 'routers-are-not-awaited',
    what: 'containers start before a router has given their interface an address',
    needs: pod(({ claims }) => claims.some(({ config }) => (config as VfConfig).slaac !== undefined)),
    plant: inStore((store) => ({
      claim(uid) {
        const claim = store.claim(uid);
        const devices = claim?.devices.map(({ config: { slaac: _, ...config }, ...device }) => ({ ...device, config }));
        return claim && { ...claim, devices: devices ?? [] };
      },
    })),
  },
  {
    name: 'blocked-by-a-name',
    what: 'a name that cannot be restored keeps the claim from being unprepared (B1)',
    plant: all(
      noReset,
      // The interface's own name, which udev has made an alternative one.
      onHost((connection) => ({
        async removeAltNames(index, keep = []) {
          const { altNames = [] } = (await connection.link({ index })) ?? {};
          await connection.removeAltNames(index, [...keep, ...altNames.filter((name) => /^ens1v/.test(name))]);
        },
      })),
      inStore((store) => ({
        deleteClaim(uid, unrestored = []) {
          if (unrestored.length > 0) throw new Error(unrestored[0]?.reason);
          store.deleteClaim(uid, unrestored);
        },
      })),
    ),
  },
  {
    name: 'data-of-the-earlier-sandbox',
    what: 'the metadata of the earlier sandbox is taken for that of the new one (B2)',
    plant: inHelper(() => ({ withdrawMetadata: async () => undefined })),
  },
  {
    name: 'unreadable-metadata',
    what: 'only root can read the metadata of a container',
    plant: inHelper((helper, _ports, directories) => ({
      async updateRequestMetadata(claim, request, ...rest) {
        const update = await helper.updateRequestMetadata(claim, request, ...rest);
        const file = openSync(fileOf(claim, directories, request.split('/')[0] ?? '', 'metadata.json'), 'r+');
        fchmodSync(file, 0o600);
        closeSync(file);
        return update;
      },
    })),
  },
  {
    name: 'starts-without-gate',
    what: 'containers start although their VF is not there yet (B3)',
    plant: inMetadata((metadata, { cdiDir }) => ({
      async prepareAll(...call) {
        const ids = await metadata.prepareAll(...call);
        for (const file of readdirSync(cdiDir).filter((each) => /^[^.].*_metadata_.*\.json$/.test(each))) {
          const spec = JSON.parse(readFileSync(join(cdiDir, file), 'utf8'));
          for (const { containerEdits } of spec.devices) delete containerEdits.hooks;
          writeFileSync(join(cdiDir, file), JSON.stringify(spec));
        }
        return ids;
      },
    })),
  },
  {
    name: 'no-handover',
    what: 'a claim that passes to the next pod is never served there (B4)',
    plant: inHelper(() => ({ prepareAgain: async () => false })),
  },
  {
    name: 'properties-left-by-cni',
    what: 'what a CNI plugin has set through the PF stays for the next claim (B5)',
    plant: inControl((control) => ({
      snapshot: async (address) =>
        isNothing(toVfWanted((address as StoredDevice).config))
          ? (undefined as never)
          : await control.snapshot(address),
    })),
  },
  {
    name: 'forgotten-rebind',
    what: 'a VF that was left without a driver by a kill gets none in the second prepare (B6)',
    plant: inControl((control) => ({
      async configure(address, wanted, before) {
        const { driver } = await control.access(address, { vhost: false, rdma: false });
        if (driver !== undefined) await control.configure(address, wanted, before);
      },
    })),
  },
  {
    name: 'endless-work',
    what: 'a sandbox whose namespace is gone is worked on for ever (B7)',
    plant: seenSandboxes((seen) =>
      inHelper((helper, { kernel: { networks } }) => ({
        async endGate(claim, sandboxId) {
          const path = seen.get(sandboxId)?.namespaces[0]?.path;
          if (path !== undefined && networks.isGone(path)) throw new Error(`there is no namespace at ${path}`);
          await helper.endGate(claim, sandboxId);
        },
      })),
    ),
  },
  {
    name: 'admin-access-takes-the-vf',
    what: 'a claim with adminAccess takes the VF from its user (B8)',
    plant: inPlugin((plugin) => ({
      prepareResourceClaims: (claims, context) =>
        plugin.prepareResourceClaims(
          claims.map((claim) => ({
            ...claim,
            results: claim.results.map(({ adminAccess: _adminAccess, ...result }) => result),
          })),
          context,
        ),
    })),
  },
  {
    name: 'allocation-ignored',
    what: 'a claim that was allocated anew keeps the VF that it had before (B9)',
    plant: inStore((store) => ({
      claim(uid) {
        const { allocation: _allocation, ...claim } = store.claim(uid) ?? {};
        return 'identity' in claim ? (claim as ReturnType<typeof store.claim>) : undefined;
      },
    })),
  },
  {
    name: 'end-of-an-old-sandbox',
    what: "the end of a pod's old sandbox ends its new one, too (B13)",
    plant: seenSandboxes((seen) =>
      inHandlers((handlers) => ({
        async removePodSandbox(pod, context) {
          await handlers.removePodSandbox?.(pod, context);
          const others = [...seen.values()].filter(({ id, uid }) => id !== pod.id && uid === pod.uid);
          for (const other of others) await handlers.removePodSandbox?.(other, context);
        },
      })),
    ),
  },
  {
    name: 'alternative-names-stay',
    what: 'alternative names of a VF are not restored (B14)',
    plant: onHost(() => ({ addAltName: async () => undefined, removeAltNames: async () => undefined })),
  },
  {
    name: 'erased-attachment',
    what: 'preparing a claim again in one instance erases what the other has stored (B15)',
    needs: faultNearUpdate('restart kubelet', 'lose sandbox', 'restart runtime'),
    plant: all(
      inStore((store) => ({
        putClaim(claim, unrestored) {
          store.putClaim(claim, unrestored);
          const given = claim.devices.map((device) => [formatDeviceKey(device), device.attachment] as const);
          store.setAttachments(claim.identity.uid, new Map(given));
        },
      })),
      (ports) => ({ ...ports, disk: { ...ports.disk, locks: new KeyedMutex() } }),
    ),
  },
  {
    name: 'lost-with-its-namespace',
    what: 'a VF in a namespace without a path is given up (A2)',
    plant: all(
      noReset,
      inPart('vfs', (vfs) => altered(vfs, { recreate: async () => undefined })),
    ),
  },
  {
    name: 'opened-too-early',
    what: 'the gate is opened before the metadata is written',
    plant: inHelper((helper, { disk: { store } }, { dataDir }) => ({
      async updateRequestMetadata(claim, request, devices, sandboxId) {
        const [attachment] = devicesOf(store, claim.uid).flatMap((device) => device.attachment ?? []);
        if (attachment !== undefined) {
          const gate = join(dataDir, 'dra-device-metadata', `${claim.namespace}_${claim.name}`, 'gate');
          writeFileSync(gate, formatGate({ state: 'served', sandboxId: attachment.sandboxId }));
        }
        return await helper.updateRequestMetadata(claim, request, devices, sandboxId);
      },
    })),
  },
  {
    name: 'fails-instead-of-waiting',
    what: 'a container whose metadata is late fails, and with restartPolicy Never its pod (A4)',
    plant: (ports) => ({ ...ports, disk: { ...ports.disk, gate: { runsHooks: () => true } } }),
  },
  {
    name: 'lost-namespaces-mean-host',
    what: "a sandbox whose namespaces containerd 2.4 has lost is taken for one on the host's network",
    needs: (plan) => plan.losesNamespaces && restartAtStart()(plan),
    plant: inSandboxes((pod) =>
      pod.namespaces.length > 0 ? pod : { ...pod, namespaces: [{ type: 'pid', path: '' }] },
    ),
  },
  {
    name: 'leftovers-keep-claims',
    what: 'a sandbox that the runtime has listed without a container keeps the claim from the next pod',
    needs: pod((_pod, next) => next?.takesOver === true),
    plant: (ports, directories) => {
      let left: readonly string[] = [];
      return all(
        whenListed((pods, withContainers) => {
          left = [...left, ...pods.filter((uid) => !withContainers.has(uid))];
        }),
        inPart('sandboxes', (sandboxes) =>
          altered(sandboxes, { hasContainers: (uid) => left.includes(uid) || sandboxes.hasContainers(uid) }),
        ),
      )(ports, directories);
    },
  },
  {
    name: 'names-of-the-earlier-pod',
    what: 'a claim that passes to another pod has interface names that are taken there',
    needs: pod((_pod, next) => next?.takesOver === true && next.claims.length > 1),
    plant: inStore((store) => ({
      putClaim(claim, unrestored) {
        const { podUids, identity } = claim;
        const known = store.claim(identity.uid);
        const isHandedOver = known?.state === 'prepared' && !podUids.some((uid) => known.podUids.includes(uid));
        const others = podUids
          .flatMap((uid) => store.claimsOfPod(uid))
          .filter((each) => each.identity.uid !== identity.uid);
        const [interfaceName] = others.flatMap(({ devices }) =>
          devices.flatMap(({ config }) => config.interfaceName ?? []),
        );
        const isNamed = isHandedOver && interfaceName !== undefined;
        const named = claim.devices.map((device) => ({ ...device, config: { ...device.config, interfaceName } }));
        store.putClaim(isNamed ? { ...claim, devices: named as StoredDevice[] } : claim, unrestored);
      },
    })),
  },
  {
    name: 'list-is-complete',
    what: 'a container that is created while or soon after the runtime lists its containers is taken for none',
    needs: pod(({ isForced }, next) => isForced && next?.takesOver === true),
    plant: (ports, directories) => {
      let shown = new Set<string>();
      let listedAtMs = 0;
      return all(
        whenListed((_pods, withContainers) => {
          listedAtMs = ports.clock.nowMs();
          shown = new Set(withContainers);
        }),
        inHandlers((handlers) => ({
          createContainer(pod, container, context) {
            if (ports.clock.nowMs() - listedAtMs > 10_000) shown.add(pod.uid);
            return handlers.createContainer?.(pod, container, context);
          },
        })),
        inPart('sandboxes', (sandboxes) =>
          altered(sandboxes, { hasContainers: (uid) => shown.has(uid) && sandboxes.hasPod(uid) }),
        ),
      )(ports, directories);
    },
  },
  {
    name: 'earlier-sandbox-served-late',
    what: 'an instance that has waited for the lock takes the VF out of the next sandbox of its pod',
    needs: fault('stall in wait'),
    plant: (ports, directories) => {
      const isLocked = new AsyncLocalStorage<boolean>();
      return all(
        inLocks((locks) => (uid, task) => locks.run(uid, () => isLocked.run(true, task))),
        onNamespaces((networks) => ({ isGone: (path) => isLocked.getStore() !== true && networks.isGone(path) })),
      )(ports, directories);
    },
  },
  {
    name: 'unfinished-spec-stays',
    what: 'what a killed process has left of a CDI spec is neither removed with its claim nor found later',
    needs: ({ killAfter, pods }) =>
      killAfter.length > 0 && pods.some(({ deletedAfterMs }) => deletedAfterMs !== undefined),
    plant: inMetadata((metadata, { cdiDir }) => ({
      async unprepareAll(claims) {
        const isOf = (file: string) => claims.some(({ claim }) => file.includes(`_${claim.uid}_`));
        const left = readdirSync(cdiDir).filter((file) => file.startsWith('.') && isOf(file));
        const result = await metadata.unprepareAll(claims);
        for (const file of left) writeFileSync(join(cdiDir, file), '');
        return result;
      },
    })),
  },
  {
    name: 'observed-vf-left-behind',
    what: 'a VF that another component has moved stays in a sandbox that the runtime has lost',
    needs: restartAtStart(({ claims }) => claims.some(({ attach }) => attach === 'observe')),
    plant: withoutTask('observed VFs'),
  },
  {
    name: 'status-stays',
    what: 'the status of a claim keeps what was written first',
    plant: inRequests(async (request, send) => {
      const isChange =
        Array.isArray(request.body) &&
        request.body.some(({ op, path }) => op === 'replace' && path !== '/metadata/resourceVersion');
      return await send(
        isChange ? { ...request, method: 'GET', path: request.path.replace(/\/status$/, '') } : request,
      );
    }),
  },
  {
    name: 'slices-stay',
    what: 'a VF that is not restored stays in its slice',
    plant: inRequests(async (request, send) => {
      return request.method === 'PUT' ? (request.body as unknown) : await send(request);
    }),
  },
  ...otherBugs,
  ...oldBugs,
  ...teardownBugs,
];
