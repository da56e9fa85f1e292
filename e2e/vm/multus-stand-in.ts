import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Name that the interface of a delegated network gets in its pod. */
export const delegatedInterface = 'multus1';

/**
 * Called in the place of the pod network's own plugin, it calls that one, and then another one for pods that a file in
 * the folder of networks is named after.
 */
const script = (pluginDir: string, networksDir: string) => `#!/bin/bash
config=$(cat)
result=$(${pluginDir}/bridge <<<"$config")
code=$?
pod=\${CNI_ARGS#*K8S_POD_NAME=}
network=${networksDir}/\${pod%%;*}
if [ $code = 0 ] && [ -f "$network" ]; then
  delegated=$(CNI_IFNAME=${delegatedInterface} ${pluginDir}/host-device <"$network")
  code=$?
  if [ $code != 0 ]; then result=$delegated; fi
fi
printf '%s' "$result"
exit $code
`;

/**
 * What Multus does, in a few lines: the runtime calls it as the plugin of the pod network, and it attaches further
 * interfaces by the reference plugin `host-device`, with nothing of netdra in it.
 */
export class MultusStandIn {
  /** CNI plugins for the runtime. */
  readonly binDir: string;
  readonly #networksDir: string;

  /**
   * @param dir an empty folder
   * @param pluginDir where the plugins themselves are
   */
  constructor(dir: string, pluginDir: string) {
    this.binDir = join(dir, 'bin');
    this.#networksDir = join(dir, 'networks');
    for (const folder of [this.binDir, this.#networksDir]) mkdirSync(folder);
    for (const name of readdirSync(pluginDir).filter((each) => each !== 'bridge')) {
      symlinkSync(join(pluginDir, name), join(this.binDir, name));
    }
    writeFileSync(join(this.binDir, 'bridge'), script(pluginDir, this.#networksDir), { mode: 0o755 });
  }

  /** Has a device attached to a pod that does not run yet. */
  attach(podName: string, pciAddress: string, address: string): void {
    const ipam = { type: 'static', addresses: [{ address }] };
    const network = { cniVersion: '1.0.0', name: 'delegated', type: 'host-device', pciBusID: pciAddress, ipam };
    writeFileSync(join(this.#networksDir, podName), JSON.stringify(network));
  }
}
