import type { DialectsConfig } from './config.ts';
import type { DialectDevice, Env } from './device.ts';
import { type DeviceInfoFile, deviceInfoFile } from './device-info.ts';
import { devicePluginEnv } from './device-plugin.ts';
import { sriovNetworkEnv } from './sriov-network.ts';

/**
 * How consumers of older dialects see a request's devices.
 * @param devices those of one request, in the order of the allocation
 * @returns variables for every container that has the request, and files on the host while the claim is prepared
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

/** In the format of `containerEdits.env` of CDI. */
export function formatEnv(env: Env): string[] {
  return Object.entries(env).map(([name, value]) => `${name}=${value}`);
}

/**
 * Finds variables to which two requests of a pod would give different values. The runtime would decide which one a
 * container with both requests gets: two VFs, of which the application sees one.
 * @param parts variables of each request, with its name as the user knows it
 * @returns problems, e.g. `PCIDEVICE_INTEL_COM_DPDK: requests nics/left and nics/right give it different values`
 */
export function findEnvConflicts(parts: readonly { request: string; env: Env }[]): string[] {
  const owners = new Map<string, { request: string; value: string }>();
  const problems: string[] = [];
  for (const { request, env } of parts) {
    for (const [name, value] of Object.entries(env)) {
      const owner = owners.get(name);
      if (owner === undefined) owners.set(name, { request, value });
      else if (owner.value !== value) {
        problems.push(`${name}: requests ${owner.request} and ${request} give it different values`);
      }
    }
  }
  return problems;
}
