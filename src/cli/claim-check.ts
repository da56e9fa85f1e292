import { checkBonds } from '../driver/api/bond-rules.ts';
import { checkDeviceCount } from '../driver/api/class-rules.ts';
import { classConfigsOf, configForDevice, resolveVfConfig } from '../driver/api/config.ts';
import { checkNamespace } from '../driver/api/namespace-rules.ts';
import type { SchemaFault } from '../driver/api/schema-faults.ts';
import { checkKinds } from '../driver/claims/device-resolver.ts';
import { checkPodInterfaces } from '../driver/claims/pod-interfaces.ts';
import { checkKey, checkKeys } from '../driver/claims/pool-addresses.ts';
import {
  type ClosedField,
  DriverError,
  mergeVfConfigs,
  type StoredDevice,
  type VfConfig,
} from '../driver/model/index.ts';
import type { AllocatedClaim } from '../framework/kubeletplugin/index.ts';
import { baseRequest, claimName } from '../framework/metadata/index.ts';
import { defined } from '../lib/defined.ts';
import { explain, NetdraError } from '../lib/errors.ts';
import { type FileRequest, requestFields, requestsOf } from './claim-requests.ts';
import type { ConfigEntry, FileClass } from './class-check.ts';
import { bothOf, fieldsOf, listOf } from './multus/contract.ts';
import { selectedKind, selectedLinkType } from './selected-kind.ts';

/** A claim in a file, or the claims of a template. Its configurations are valid by themselves. */
export interface FileClaim {
  name: string;
  /** Namespace of the claim. Absent: the program that creates the claim chooses it. */
  namespace: string | undefined;
  /** `spec.devices` of the claim. */
  devices: Record<string, unknown>;
  configs: ConfigEntry[];
  /** Whether the claim is created from a pod's template. */
  isFromTemplate: boolean;
}

export interface ClaimCheckOptions {
  driver: string;
  /** Fields in the driver's `--open-claim-fields`. */
  open: readonly ClosedField[];
  /** DeviceClasses in the files, by name. */
  classes: ReadonlyMap<string, FileClass>;
}

export interface ClaimFindings {
  /** Reasons for which the driver refuses the claim; paths begin below `spec.devices`. */
  faults: SchemaFault[];
  /** Questions that files cannot answer. */
  notes: { path: PropertyKey[]; message: string }[];
}

/**
 * Checks a claim against its DeviceClasses as the driver does at prepare. Leaves out checks that need the node or the labels of
 * the namespace. Checks the first alternatives of all `firstAvailable` together, then the second ones, and so on. If the driver
 * would refuse only some of these allocations, the result is a note, since the scheduler may choose another one.
 */
export async function checkFileClaim(claim: FileClaim, options: ClaimCheckOptions): Promise<ClaimFindings> {
  const requests = requestsOf(claim.devices);
  const [faults, notes]: [Map<string, SchemaFault>, Map<string, ClaimFindings['notes'][0]>] = [new Map(), new Map()];
  const rounds = Math.max(0, ...requests.map((alternatives) => alternatives.length));
  const together: (SchemaFault | undefined)[] = [];
  for (let round = 0; round < rounds; round++) {
    const chosen = requests.flatMap((alternatives) => alternatives[round] ?? alternatives.slice(-1));
    const found = await new AllocationCheck(claim, options, chosen).check();
    for (const fault of found.faults) faults.set(`${fault.path.join()} ${fault.message}`, fault);
    for (const note of found.notes) notes.set(`${note.path.join()} ${note.message}`, note);
    together.push(found.together);
  }
  for (const fault of together) {
    if (fault === undefined) continue;
    const { path, message } = fault;
    if (!together.includes(undefined)) faults.set(message, fault);
    else notes.set(message, { path, message: `with some alternatives the driver refuses the claim: ${message}` });
  }
  return { faults: [...faults.values()], notes: [...notes.values()] };
}

interface AllocationFindings extends ClaimFindings {
  /** Reason why the devices of all requests cannot be in one pod. */
  together?: SchemaFault;
}

/** Checks a claim as if devices had been allocated for the given requests. */
class AllocationCheck {
  readonly #file: FileClaim;
  readonly #options: ClaimCheckOptions;
  readonly #requests: readonly FileRequest[];
  readonly #claim: AllocatedClaim;
  readonly #findings: AllocationFindings = { faults: [], notes: [] };

  constructor(file: FileClaim, options: ClaimCheckOptions, chosen: readonly FileRequest[]) {
    this.#file = file;
    this.#options = options;
    this.#requests = chosen.filter((request) => this.#isOurs(request));
    this.#claim = this.#allocatedClaim();
  }

  async check(): Promise<AllocationFindings> {
    const { faults, notes } = this.#findings;
    const [known, unknown] = [true, false].map((isKnown) =>
      this.#requests.filter(({ className }) => this.#options.classes.has(className) === isKnown),
    ) as [FileRequest[], FileRequest[]];
    for (const { className, path } of unknown) {
      const what = `DeviceClass ${className} is in none of the files, or is not valid`;
      notes.push({ path, message: `${what}: the claim was not compared with it` });
    }
    const devices: StoredDevice[] = [];
    for (const request of unknown.filter(({ name }) => this.#isNamed(name) || this.#requests.length === 1)) {
      const fault = await faultOf(`request ${request.name}`, request.path, () => {
        this.#devicesOf(request, this.#uniqueFieldsOf(request.name));
      });
      if (fault !== undefined) faults.push(fault);
    }
    for (const request of known) {
      const fault = await faultOf(`request ${request.name}`, request.path, async () => {
        const ofRequest = this.#devicesOf(request, await this.#configOf(request.name));
        checkKinds(this.#claim, ofRequest.map(withoutVlanRule));
        if (!this.#file.isFromTemplate) for (const device of ofRequest) checkKey(this.#claim, device);
        devices.push(...ofRequest);
      });
      if (fault !== undefined) faults.push(fault);
    }
    if (faults.length > 0) return this.#findings;
    const together = await faultOf('requests', ['requests'], () => {
      // A device of an unknown class could be a member of the bond.
      if (unknown.length === 0) checkBonds(this.#claim, devices);
      checkPodInterfaces(this.#claim, devices, []);
      checkKeys(this.#claim, devices);
    });
    return { ...this.#findings, ...defined({ together }) };
  }

  /** Returns whether a request may be for devices of the driver. A class of another driver does not mention the driver. */
  #isOurs({ name, className }: FileRequest): boolean {
    if (this.#isNamed(name)) return true;
    return this.#options.classes.get(className)?.isOurs ?? this.#file.configs.some(isForAll);
  }

  /** Returns whether a configuration of the claim lists the request. */
  #isNamed(request: string): boolean {
    return this.#file.configs.some((entry) => isFor(entry, request));
  }

  /** Returns the claim's fields that only one device can have, whatever the class sets. */
  #uniqueFieldsOf(request: string): VfConfig {
    const { interfaceName, macAddress, addressPool } = this.#file.configs
      .filter((entry) => isForAll(entry) || isFor(entry, request))
      .map(({ opaque }) => opaque?.parameters as VfConfig)
      .reduce(mergeVfConfigs, {});
    return defined({ interfaceName, macAddress, addressPool });
  }

  #allocatedClaim(): AllocatedClaim {
    const { driver, classes } = this.#options;
    const { name, namespace = 'default', devices, configs } = this.#file;
    const ofClasses = this.#requests.flatMap((request) =>
      (classes.get(request.className)?.configs ?? []).map((entry) => {
        return { ...entry, source: 'FromClass', requests: [request.name] };
      }),
    );
    const config = [...ofClasses, ...configs.map((entry) => ({ ...entry, source: 'FromClaim' }))];
    const results = this.#requests.flatMap(({ name: request, count }) =>
      Array.from({ length: count === 'all' ? 1 : count }, () => ({ driver, pool: '', device: request, request })),
    );
    return {
      identity: { namespace, name, uid: '' },
      podClaimName: undefined,
      results,
      podUids: [],
      object: {
        spec: { devices: { requests: requestFields(devices) } },
        status: { allocation: { devices: { config } } },
      },
    } as unknown as AllocatedClaim;
  }

  async #configOf(request: string): Promise<VfConfig> {
    const { driver, open } = this.#options;
    const ofClass = classConfigsOf(driver, this.#claim, request);
    if (this.#file.namespace !== undefined) {
      const reader = { readLabels: () => Promise.reject(new Error('files have no labels of namespaces')) };
      await checkNamespace(this.#claim, ofClass, reader, new AbortController().signal).catch((error: unknown) => {
        if (!(error instanceof DriverError && error.code === 'namespace-unreadable')) throw error;
      });
    }
    checkDeviceCount(this.#claim, request, ofClass);
    return resolveVfConfig(driver, this.#claim, request, { open, nodeNetworks: [] });
  }

  /**
   * Returns simulated devices for a request, each of another PF. If the request is for all devices of a node, returns the
   * smallest possible number.
   */
  #devicesOf({ name: request, className, selectors, count, path }: FileRequest, config: VfConfig): StoredDevice[] {
    const subject = claimName(this.#claim.identity);
    const ofClass = this.#options.classes.get(className)?.selectors ?? '';
    const expression = bothOf(ofClass, selectors);
    // If the selectors allow both kinds, the device counts as a whole NIC, to which the rules for VFs do not apply.
    const kind = selectedKind(expression) ?? 'nic';
    const linkType = selectedLinkType(expression);
    if (count === 'all') {
      try {
        configForDevice(config, subject, 0, 2);
      } catch (error) {
        if (!(error instanceof DriverError)) throw error;
        const message = `with allocationMode All, the driver refuses the claim if the node has several devices: ${explain(error)}`;
        this.#findings.notes.push({ path, message });
      }
    }
    const few = config.bond === undefined ? 1 : 2;
    return Array.from({ length: count === 'all' ? few : count }, (_, index) => {
      const own = configForDevice(config, subject, index, count === 'all' ? 1 : count);
      const name = count === 1 ? request : `${request}[${index}]`;
      const offered = { kind, name, pciAddress: name, ...defined({ linkType }) };
      const { driver } = this.#options;
      return { driver, pool: '', name, pciAddress: name, request, config: own, offered } as unknown as StoredDevice;
    });
  }
}

/** Returns a device of unknown link type as InfiniBand, which needs no VLAN. */
function withoutVlanRule(device: StoredDevice): StoredDevice {
  return { ...device, offered: { ...device.offered, linkType: device.offered.linkType ?? 'infiniband' } };
}

function isForAll({ requests = [] }: ConfigEntry): boolean {
  return requests.length === 0;
}

function isFor({ requests = [] }: ConfigEntry, request: string): boolean {
  return requests.includes(request) || requests.includes(baseRequest(request));
}

/** Returns whether a pod owns a claim, as with claims from templates. @param metadata metadata of the claim */
export function isOwnedByPod(metadata: unknown): boolean {
  return listOf(fieldsOf(metadata).ownerReferences).some((owner) => fieldsOf(owner).kind === 'Pod');
}

/** Runs a check. @returns the reason for which the driver refuses the claim, if any */
async function faultOf(
  field: string,
  path: PropertyKey[],
  check: () => void | Promise<void>,
): Promise<SchemaFault | undefined> {
  try {
    await check();
    return undefined;
  } catch (error) {
    if (!(error instanceof NetdraError)) throw error;
    return { field, message: explain(error), path };
  }
}
