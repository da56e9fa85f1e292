import { spawnSync } from 'node:child_process';
import { chmodSync, existsSync, linkSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import {
  baseRequest,
  ClaimMetadata,
  type DeviceMetadata,
  type LayoutName,
  layoutNames,
  layouts,
} from '../../../src/framework/metadata/index.ts';
import { testDriver } from '../../doubles/objects.ts';
import { tempDir } from '../../doubles/temp-dir.ts';

export interface PreparedRequest {
  claim: string;
  /** Default: `uid-` and the claim's name. */
  uid?: string;
  /** Makes it a claim of a template, which has `claim` as its generated name. */
  podClaimName?: string;
  /** Default `vf`. */
  request?: string;
  driver?: string;
  /** The names of the extended resources that the container has asked for. */
  extendedResources?: string[];
  /** Without driver, pool and name: these are filled in. None: there is no file yet. */
  devices?: Omit<DeviceMetadata, 'driver' | 'pool' | 'name'>[];
  layouts?: readonly LayoutName[];
}

/**
 * The root of a container, with the metadata files that the driver's own code wrote. A file is there as a second name of
 * the one on the host, so updates show as they do through a bind mount.
 */
export class ContainerRoot implements Disposable {
  readonly #dir = tempDir();
  readonly path = join(this.#dir.path, 'root');

  /** Prepares a request, as it is when its container starts. @returns changes its devices, and tells the generation */
  async prepare(prepared: PreparedRequest): Promise<(devices: PreparedRequest['devices']) => Promise<number>> {
    const { driver = testDriver, request = 'vf', devices, podClaimName, extendedResources = [] } = prepared;
    const claim = { namespace: 'default', name: prepared.claim, uid: prepared.uid ?? `uid-${prepared.claim}` };
    const names = (devices ?? [{}]).map((_device, index) => ({ pool: 'node-1', name: `dev-${index}` }));
    const full = (list: PreparedRequest['devices']) =>
      (list ?? []).map((device, index) => ({ driver, ...names[index]!, ...device }));
    const metadata = this.#metadata(driver, prepared.layouts ?? ['v1', 'kep'], devices ?? []);
    const record = {
      claim,
      podUid: 'pod-1',
      ...(podClaimName === undefined ? {} : { podClaimName }),
      requests: { [baseRequest(request)]: { name: request, devices: names, extendedResources } },
    };
    await metadata.prepare(record, new Map());
    if (devices !== undefined) await metadata.update(claim, request, full(devices));
    this.#mount();
    return async (changed) => {
      const { generation } = await metadata.update(claim, request, full(changed));
      this.#mount();
      return generation;
    };
  }

  #metadata(driver: string, names: readonly LayoutName[], devices: Pick<DeviceMetadata, 'attributes'>[]) {
    const host = join(this.#dir.path, 'host');
    return new ClaimMetadata({
      enabled: true,
      driver,
      dataDir: join(host, 'plugins', driver),
      cdiDir: join(host, 'cdi'),
      attributesDir: join(host, 'attributes'),
      downwardApiDir: join(host, 'downward-api'),
      layouts: names.map((name) => layouts[name]),
      attributesOf: ({ name }) => devices[Number(name.replace('dev-', ''))]?.attributes,
    });
  }

  /** What the runtime makes of the CDI specs. */
  #mount(): void {
    const cdiDir = join(this.#dir.path, 'host/cdi');
    for (const file of readdirSync(cdiDir)) {
      const spec = JSON.parse(readFileSync(join(cdiDir, file), 'utf8'));
      for (const { hostPath, containerPath } of spec.devices[0].containerEdits.mounts) {
        const path = join(this.path, containerPath);
        if (!existsSync(hostPath) || existsSync(path)) continue;
        mkdirSync(dirname(path), { recursive: true });
        linkSync(hostPath, path);
      }
    }
  }

  /** Puts a file into the container that no driver of ours wrote. */
  write(path: string, content: string | Uint8Array): string {
    const full = join(this.path, path);
    mkdirSync(dirname(full), { recursive: true });
    rmSync(full, { force: true });
    writeFileSync(full, content);
    return full;
  }

  /** Lets other users in: temporary folders are their owner's only. */
  open(): void {
    chmodSync(this.#dir.path, 0o755);
  }

  /** Paths of all metadata files, from the container's root. */
  files(): string[] {
    if (!existsSync(this.path)) return [];
    const entries = readdirSync(this.path, { recursive: true, withFileTypes: true });
    return entries
      .filter((entry) => entry.isFile())
      .map((entry) => join(entry.parentPath, entry.name).slice(this.path.length))
      .sort();
  }

  [Symbol.dispose]() {
    this.#dir[Symbol.dispose]();
  }
}

/** A VF as our driver describes it: one for DPDK unless `driver` says otherwise. */
export function vf(index: number, driver = 'vfio-pci'): NonNullable<PreparedRequest['devices']>[number] {
  return {
    attributes: {
      'resource.kubernetes.io/pciBusID': { string: `0000:3b:02.${index}` },
      'resource.kubernetes.io/numaNode': { int: 1 },
      driver: { string: driver },
      mtu: { int: 1400 + index },
      vfIndex: { int: index },
      vlan: { int: 100 + index },
      ...(driver === 'vfio-pci' ? { vfioDevice: { string: `/dev/vfio/${40 + index}` } } : {}),
    },
    networkData: {
      interfaceName: `net${index}`,
      ips: [`192.0.2.${index}/24`, `2001:db8::${index}/64`],
      hardwareAddress: `02:00:00:00:00:0${index}`,
    },
  };
}

export const allLayouts = layoutNames;

export interface ToolResult {
  exitCode: number | null;
  stdout: string;
  stderr: string;
}

/** Runs a program to its end. */
export function runProgram(
  program: string,
  args: readonly string[],
  env: NodeJS.ProcessEnv = process.env,
  timeoutMs = 60_000,
): ToolResult {
  const { status, stdout, stderr, error } = spawnSync(program, args, { env, encoding: 'utf8', timeout: timeoutMs });
  if (error) throw error;
  return { exitCode: status, stdout, stderr };
}
