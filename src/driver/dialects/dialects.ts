import type { DialectsConfig } from '../model/index.ts';
import type { DialectDevice, Env } from './device.ts';
import { type DeviceInfoFile, deviceInfoFile } from './device-info.ts';
import { devicePluginEnv } from './device-plugin.ts';
import { sriovNetworkEnv } from './sriov-network.ts';

/**
 * Returns the variables and files that older dialects have for a request's devices.
 * @param devices devices of one request, in allocation order
 * @returns variables for every container that has the request, and files that the host has while the claim is prepared
 */
export function viewInDialects(
  config: DialectsConfig,
  devices: readonly DialectDevice[],
): { env: Env; deviceInfoFiles: DeviceInfoFile[] } {
  const { devicePlugin, deviceInfo, sriovNetwork } = config;
  return {
    env: {
      ...(devicePlugin === undefined ? {} : devicePluginEnv(devicePlugin, devices)),
      ...(sriovNetwork === undefined ? {} : sriovNetworkEnv(sriovNetwork, devices)),
    },
    deviceInfoFiles:
      deviceInfo === undefined ? [] : devices.map((device) => deviceInfoFile(deviceInfo.resourceName, device)),
  };
}

/** Formats variables for `containerEdits.env` of CDI. */
export function formatEnv(env: Env): string[] {
  return Object.entries(env).map(([name, value]) => `${name}=${value}`);
}

/** Variables of a request. */
export interface RequestEnv {
  /** Name of the request in messages. */
  request: string;
  env: Env;
  /** Extended resource that the request was made for. */
  extendedResource?: string | undefined;
}

/**
 * Finds variables to which two requests of a pod would give different values. In a container with both requests, the runtime
 * would choose one of the values, and the application would see only one of two VFs. Two requests for the same extended
 * resource are allowed: the container gets a value for both, see `containerEnv`.
 * @returns problems, e.g. `PCIDEVICE_INTEL_COM_DPDK: requests nics/left and nics/right give it different values`
 */
export function findEnvConflicts(parts: readonly RequestEnv[]): string[] {
  const names = [...new Set(parts.flatMap(({ env }) => Object.keys(env)))];
  return names.flatMap((name) => {
    const owners = parts.filter(({ env }) => env[name] !== undefined);
    return owners.flatMap((owner, index) => {
      const other = owners
        .slice(0, index)
        .find((before) => before.env[name] !== owner.env[name] && canClash(before, owner));
      if (other === undefined) return [];
      return [`${name}: requests ${other.request} and ${owner.request} give it different values`];
    });
  });
}

/** Returns whether a container with both requests would get the variables of only one of them. */
function canClash(a: RequestEnv, b: RequestEnv): boolean {
  return a.extendedResource === undefined || a.extendedResource !== b.extendedResource;
}
