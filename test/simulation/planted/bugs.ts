import type { PlantedBug } from './plant.ts';

const noReset = {
  file: 'src/node/sriov/vf-hardware.ts',
  replace: '{ reset = true, changed',
  by: '{ reset = false, changed',
};

/** Defects of earlier versions, put back where the code of today has their place. */
export const plantedBugs: readonly PlantedBug[] = [
  {
    name: 'blocked-by-a-name',
    what: 'a name that cannot be restored keeps the claim from being unprepared (B1)',
    changes: [
      noReset,
      { file: 'src/node/netlink/link-state.ts', replace: 'if (altNames.includes(name)) {', by: 'if (!altNames) {' },
      {
        file: 'src/driver/claims/driver.ts',
        replace: '      return explain(error);\n',
        by: '      throw error;\n',
      },
    ],
  },
  {
    name: 'data-of-the-earlier-sandbox',
    what: 'the network data of the earlier sandbox is stored with the new attachment (B2)',
    changes: [
      {
        file: 'src/driver/vf/attachments.ts',
        replace: '{ ...place, ...(host === undefined ? {} : { host }) }',
        by: '{ ...place, ...(host === undefined ? {} : { host }), ...(old?.networkData && { networkData: old.networkData }) }',
      },
    ],
  },
  {
    name: 'starts-without-gate',
    what: 'containers start although their VF is not there yet (B3)',
    changes: [
      {
        file: 'src/framework/metadata/files/claim-metadata.ts',
        replace: '...(isGated ? { hooks',
        by: '...(!isGated ? { hooks',
      },
    ],
  },
  {
    name: 'no-handover',
    what: 'a claim that passes to the next pod is never served there (B4)',
    changes: [
      {
        file: 'src/driver/recovery/inactive-claims.ts',
        replace: "return { action: 'hand-over', sweeps: isDue ? 1 : sweepsForKubelet };",
        by: 'return undefined;',
      },
    ],
  },
  {
    name: 'properties-left-by-cni',
    what: 'what a CNI plugin has set through the PF stays for the next claim (B5)',
    changes: [
      {
        file: 'src/driver/claims/driver.ts',
        replace: 'if (device.pfAddress === undefined && wanted === undefined) return undefined;',
        by: 'if (wanted === undefined) return undefined;',
      },
    ],
  },
  {
    name: 'forgotten-rebind',
    what: 'a VF that was left without a driver by a kill gets none in the second prepare (B6)',
    changes: [
      {
        file: 'src/node/sriov/vf-hardware.ts',
        replace: 'else if (current === undefined) await this.#binding.bind(pciAddress, before.driver);',
        by: '',
      },
    ],
  },
  {
    name: 'endless-work',
    what: 'a sandbox that has left the list of the runtime is worked on for ever (B7)',
    changes: [
      {
        file: 'src/driver/sandbox/sandbox-registry.ts',
        replace:
          'if (netnsPath !== undefined && this.#deps.networks.isGone(netnsPath)) this.#inBackground(this.#end(sandbox));\n    else if (isMissing || isLeftover)',
        by: 'if (isLeftover && netnsPath === sandboxId)',
      },
      {
        file: 'src/driver/sandbox/sandbox-registry.ts',
        replace: 'if (facts.podUid === podUid && facts.sandboxId !== sandboxId)',
        by: 'if (facts.podUid === podUid && facts.sandboxId === podUid)',
      },
    ],
  },
  {
    name: 'admin-access-takes-the-vf',
    what: 'a claim with adminAccess takes the VF from its user (B8)',
    changes: [
      {
        file: 'src/driver/claims/device-resolver.ts',
        replace: 'filter(({ adminAccess }) => adminAccess !== true)',
        by: 'filter(() => true)',
      },
    ],
  },
  {
    name: 'allocation-ignored',
    what: 'a claim that was allocated anew keeps the VF that it had before (B9)',
    changes: [
      {
        file: 'src/driver/claims/driver.ts',
        replace: "const isAgain = known?.state === 'prepared' && (known.allocation ?? allocation) === allocation;",
        by: "const isAgain = known?.state === 'prepared';",
      },
    ],
  },
  {
    name: 'end-of-an-old-sandbox',
    what: "the end of a pod's old sandbox ends its new one, too (B13)",
    changes: [
      {
        file: 'src/driver/sandbox/sandbox-registry.ts',
        replace: '    await this.#end(sandbox);\n',
        by: '    const isOf = (each: Entry) => each.sandbox.facts.podUid === facts.podUid;\n    await Promise.all([...this.#entries.values()].filter(isOf).map((each) => this.#end(each.sandbox)));\n',
      },
    ],
  },
  {
    name: 'alternative-names-stay',
    what: 'alternative names of a VF are not restored (B14)',
    changes: [
      {
        file: 'src/node/netlink/link-state.ts',
        replace: "  await steps.run('altNames', () => restoreAltNames(connection, index, before.altNames));\n",
        by: '',
      },
    ],
  },
  {
    name: 'erased-attachment',
    what: 'preparing a claim again in one instance erases what the other has stored (B15)',
    changes: [
      {
        file: 'src/driver/state/store.ts',
        replace: 'const attachment = known === undefined ? given : known.attachment;',
        by: 'const attachment = known ? given : given;',
      },
      {
        file: 'src/driver/state/claim-locks.ts',
        replace: 'while (!this.#guard(() => tryLockByte(this.#descriptor, offset)))',
        by: 'while (!this.#guard(() => tryLockByte(this.#descriptor, offset)) && offset < 0)',
      },
    ],
  },
  {
    name: 'lost-with-its-namespace',
    what: 'a VF in a namespace without a path is given up (A2)',
    changes: [
      noReset,
      {
        file: 'src/driver/vf/vf-links.ts',
        replace: '    await this.#vfs.recreate(device.pciAddress);\n',
        by: '',
      },
    ],
  },
  {
    name: 'opened-too-early',
    what: 'the gate is opened before the metadata is written',
    changes: [
      {
        file: 'src/driver/sandbox/metadata-writer.ts',
        replace: 'const isNew = this.#recordNetworkData(identity, known);',
        by: 'const isNew = this.#recordNetworkData(identity, known);\n    await files.openGate(identity, sandboxId).catch(() => undefined);',
      },
      {
        file: 'src/framework/metadata/files/claim-metadata.ts',
        replace: '      checkAllWritten(state, claim);\n',
        by: '',
      },
    ],
  },
  {
    name: 'fails-instead-of-waiting',
    what: 'a container whose metadata is late fails, and with restartPolicy Never its pod (A4)',
    changes: [
      {
        file: 'src/framework/metadata/files/claim-metadata.ts',
        replace: 'const isGated = gate !== undefined;',
        by: 'const isGated = gate === undefined;',
      },
    ],
  },
  {
    name: 'lost-namespaces-mean-host',
    what: "a sandbox whose namespaces containerd 2.4 has lost is taken for one on the host's network",
    changes: [{ file: 'src/driver/sandbox/pod.ts', replace: 'namespaces.length === 0', by: 'namespaces.length < 0' }],
  },
  {
    name: 'leftovers-keep-claims',
    what: 'a sandbox that is left of a runtime that was killed while it made it keeps the claim from the next pod',
    changes: [
      {
        file: 'src/driver/sandbox/sandbox-registry.ts',
        replace: 'return ofPod.some(({ hasContainers }) => hasContainers || isListNew);',
        by: 'return ofPod.length > 0;',
      },
    ],
  },
  {
    name: 'names-of-the-earlier-pod',
    what: 'a claim that passes to another pod keeps interface names that are taken there',
    changes: [{ file: 'src/driver/claims/driver.ts', replace: 'if (work.isHandedOver)', by: 'if (false)' }],
  },
  {
    name: 'list-is-complete',
    what: 'a container that is being created while the runtime lists its containers is taken for none',
    changes: [
      { file: 'src/driver/sandbox/sandbox-registry.ts', replace: 'hasContainers || isListNew', by: 'hasContainers' },
    ],
  },
  {
    name: 'earlier-sandbox-served-late',
    what: 'an instance that has waited for the lock takes the VF out of the next sandbox of its pod',
    changes: [
      { file: 'src/driver/sandbox/claim-work.ts', replace: 'if (networks.isGone(place.netnsPath))', by: 'if (false)' },
    ],
  },
  {
    name: 'unfinished-spec-stays',
    what: 'what a killed process has left of a CDI spec is not found when nothing else is left of its claim',
    changes: [
      {
        file: 'src/framework/metadata/files/cdi.ts',
        replace: 'const isTemporary = file',
        by: 'const isTemporary = false && file',
      },
    ],
  },
  {
    name: 'observed-vf-left-behind',
    what: 'a VF that another component has moved stays in a sandbox that the runtime has lost',
    changes: [
      {
        file: 'src/driver/recovery/observed-vfs.ts',
        replace: 'if (!sandboxes.isFresh) return',
        by: 'if (true) return',
      },
    ],
  },
];
