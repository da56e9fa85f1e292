import { AsyncLocalStorage } from 'node:async_hooks';
import { existsSync, readdirSync, rmSync } from 'node:fs';
import type { StoredClaim } from '../../../src/driver/model/index.ts';
import type { ResourceSlice } from '../../../src/framework/resourceslice/index.ts';
import { fault, pod } from './needs.ts';
import {
  all,
  inControl,
  inHelper,
  inLocks,
  inNamespaces,
  inPods,
  inRequests,
  inStore,
  type PlantedBug,
  withoutTask,
} from './plant.ts';
import { fileOf } from './plant-node.ts';

/** Defects that the commits named in them have mended. */
export const oldBugs: readonly PlantedBug[] = [
  {
    name: 'withdrawn-once',
    what: 'what was withdrawn when a VF left its pod is not withdrawn again while the VF is not back (80a3418e)',
    needs: pod(({ vfLeavesTo }) => vfLeavesTo !== undefined),
    plant: inHelper((helper) => {
      const withdrawn = new Set<string>();
      return {
        async withdrawMetadata(claim, requests) {
          if (withdrawn.has(claim.uid)) return;
          withdrawn.add(claim.uid);
          await helper.withdrawMetadata(claim, requests);
        },
        async openGate(claim, ...rest) {
          const updates = await helper.openGate(claim, ...rest);
          withdrawn.delete(claim.uid);
          return updates;
        },
      };
    }),
  },
  {
    name: 'mount-stays-blank',
    what: 'a running container does not see the file of a VF that has come back to it (a473b202)',
    needs: (plan) => plan.settings.some(({ gate }) => gate === 'file'),
    plant: inHelper((helper, _ports, directories) => ({
      async withdrawMetadata(claim, ...rest) {
        await helper.withdrawMetadata(claim, ...rest);
        const folder = fileOf(claim, directories);
        for (const name of existsSync(folder) ? readdirSync(folder) : [])
          rmSync(fileOf(claim, directories, name, '.metadata.json.withdrawn'), { force: true });
      },
    })),
  },
  {
    name: 'taint-is-left-out',
    what: 'a VF that could not be restored has no taint (68e9c567)',
    needs: fault('card refuses', 'interfaces late', 'reset card'),
    plant: inRequests(async (request, send) => {
      const { kind, spec } = (request.body ?? {}) as Partial<ResourceSlice> & { kind?: string };
      if (kind !== 'ResourceSlice' || spec === undefined) return await send(request);
      const devices = spec.devices?.map(({ taints: _taints, ...device }) => device);
      return await send({ ...request, body: { ...(request.body as object), spec: { ...spec, devices } } });
    }),
  },
  {
    name: 'change-during-a-pass-is-lost',
    what: 'a change in a pod is lost if it comes while the pod is being read (0517975e)',
    needs: (plan) => plan.liveUpdates && pod(({ mutations }) => mutations > 1)(plan),
    plant: inNamespaces((namespace, { clock }) => {
      let seenAtMs = Number.NEGATIVE_INFINITY;
      return {
        watch: (onChange) =>
          namespace.watch(() => {
            const nowMs = clock.nowMs();
            if (nowMs - seenAtMs < 1_000) return;
            seenAtMs = nowMs;
            onChange();
          }),
      };
    }),
  },
  {
    name: 'link-back-when-configured',
    what: 'a VF whose link was taken for want of an LACP partner gets it back when it is configured again (16935d0c)',
    needs: fault('partner lost'),
    plant: inControl((control) => ({
      async configure(address, wanted, before) {
        await control.configure(address, wanted, before);
        if (address.pfAddress !== undefined) await control.setLinkState(address, 'auto');
      },
    })),
  },
  {
    name: 'read-before-the-lock',
    what: 'work on a claim goes by what was stored when it began to wait for the lock (351ee624, 35d72029)',
    needs: ({ lockedRate }) => lockedRate > 0,
    plant: (ports, directories) => {
      const asked = new AsyncLocalStorage<{ claims: readonly StoredClaim[] } | undefined>();
      const { store } = ports.disk;
      const atFirst = inLocks((locks) => async (key, task) => {
        const claims = store.claims();
        return await locks.run(key, () => asked.run({ claims }, task));
      });
      const afterwards = inStore(() => {
        const read = () => asked.getStore()?.claims ?? store.claims();
        const isChanged =
          <Args extends unknown[]>(change: (...args: Args) => void) =>
          (...args: Args) => {
            const found = asked.getStore();
            change(...args);
            if (found !== undefined) found.claims = store.claims();
          };
        return {
          claims: read,
          claim: (uid) => read().find(({ identity }) => identity.uid === uid),
          putClaim: isChanged(store.putClaim.bind(store)),
          setAttachments: isChanged(store.setAttachments.bind(store)),
          setState: isChanged(store.setState.bind(store)),
          deleteClaim: isChanged(store.deleteClaim.bind(store)),
        };
      });
      return all(atFirst, afterwards)(ports, directories);
    },
  },
  {
    name: 'members-read-one-by-one',
    what: 'the members of a bond are read when each of them has joined, not when the last one has (423585a1)',
    needs: pod(({ claims }) => claims.some(({ isBond }) => isBond)),
    plant: inPods((connection) => {
      const first = new Map<number, Awaited<ReturnType<typeof connection.link>>>();
      return {
        async link(which) {
          const link = await connection.link(which);
          if (link?.kind !== 'bond') return link;
          const known = first.get(link.index);
          first.set(link.index, known ?? link);
          return known ?? link;
        },
      };
    }),
  },
  {
    name: 'earlier-boots-are-this-one',
    what: 'claims that were prepared before the node booted count as prepared (4bde49fd)',
    needs: fault('reboot'),
    plant: inStore(() => ({ claimsOfEarlierBoots: () => [] })),
  },
  {
    name: 'rounds-read-no-sandbox',
    what: 'a pod is not read again after the store could not be read (2bb72873)',
    plant: withoutTask('sandboxes'),
  },
];
