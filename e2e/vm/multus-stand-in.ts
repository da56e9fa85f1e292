import { mkdirSync, readdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

/** Name that the interface of a delegated network gets in its pod. */
export const delegatedInterface = 'multus1';

/**
 * Called instead of the pod network's own plugin, it calls that one, and then a second one for pods that have a file of
 * their name in the folder of networks.
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
 * The essence of Multus: the runtime calls it as the plugin of the pod network, and it attaches further
 * interfaces with the reference plugin `host-device`, without any netdra code.
 */
export class MultusStandIn {
  /** Folder of CNI plugins for the runtime. */
  readonly binDir: string;
  readonly #networksDir: string;

  /**
   * @param dir an empty folder
   * @param pluginDir folder with the actual plugins
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

  /** Has a device attached to a pod that is not running yet. */
  attach(podName: string, pciAddress: string, address: string): void {
    const ipam = { type: 'static', addresses: [{ address }] };
    const network = { cniVersion: '1.0.0', name: 'delegated', type: 'host-device', pciBusID: pciAddress, ipam };
    writeFileSync(join(this.#networksDir, podName), JSON.stringify(network));
  }
}
