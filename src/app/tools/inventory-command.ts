import type { Command } from 'commander';
import { driverDirs, runTool, type ToolOptions, toolCommand, writeOutput } from './command.ts';

const flags = ['driverName', 'kubeletPluginsDir', 'stateDir', 'inventoryPolicy', 'simulate'] as const;
type InventoryOptions = ToolOptions<(typeof flags)[number]>;

/** `netdra inventory`: the devices that are offered, and why others are not. */
export function inventoryCommand(): Command {
  return toolCommand(
    'inventory',
    'list the devices of this node as they are offered, and why others are not; changes nothing',
    flags,
  ).action((options: InventoryOptions) => runTool(() => inventory(options)));
}

async function inventory(options: InventoryOptions): Promise<void> {
  const { existsSync } = await import('node:fs');
  const { formatInventory, simulatedTree, takeInventory } = await import('./inventory.ts');
  const { heldDevices } = await import('../../driver/devices/held-devices.ts');
  const { readStoredClaims } = await import('./stored-claims.ts');
  const { RtnlConnection } = await import('../../node/netlink/index.ts');
  const { stateDir } = driverDirs(options);
  const { inventoryPolicy: policyPath, simulate } = options;
  const claims = readStoredClaims(`${stateDir}/state.db`);
  using connection = RtnlConnection.open();
  const view = await takeInventory({
    connection,
    sysfsRoot: '/sys',
    held: heldDevices(claims),
    claimOf(pciAddress) {
      const holder = claims.find(({ devices }) => devices.some((device) => device.pciAddress === pciAddress));
      return holder && `${holder.identity.namespace}/${holder.identity.name}`;
    },
    ...(policyPath === undefined ? {} : { policyPath }),
    ...(simulate === undefined ? {} : { simulatedIn: stateDir }),
  });
  writeOutput(options, view, formatInventory);
  if (simulate === undefined && existsSync(simulatedTree(stateDir)))
    process.stderr.write('netdra: there are simulated VFs, too: --simulate, as the driver has it, lists them\n');
}
