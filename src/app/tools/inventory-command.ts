import { Command } from 'commander';
import { commonOptions } from '../command-options.ts';
import { type DirOptions, driverDirs, type OutputOptions, runTool, writeOutput } from './command.ts';

type Flags = OutputOptions & DirOptions & { inventoryPolicy?: string; simulate?: object };

/** `netdra inventory`: the devices that are offered, and why others are not. */
export function inventoryCommand(): Command {
  return new Command('inventory')
    .description('list the devices of this node as they are offered, and why others are not; changes nothing')
    .showHelpAfterError('(netdra inventory --help lists the flags)')
    .addOption(commonOptions.output())
    .addOption(commonOptions.driverName())
    .addOption(commonOptions.kubeletPluginsDir())
    .addOption(commonOptions.stateDir())
    .addOption(commonOptions.inventoryPolicy())
    .addOption(commonOptions.simulate())
    .action((flags: Flags) => runTool(() => inventory(flags)));
}

async function inventory(flags: Flags): Promise<void> {
  const { existsSync } = await import('node:fs');
  const { formatInventory, simulatedTree, takeInventory } = await import('./inventory.ts');
  const { heldDevices } = await import('../../driver/devices/vf-source.ts');
  const { readStoredClaims } = await import('./stored-claims.ts');
  const { RtnlConnection } = await import('../../node/netlink/index.ts');
  const { stateDir } = driverDirs(flags);
  const { inventoryPolicy: policyPath, simulate } = flags;
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
  writeOutput(flags, view, formatInventory);
  if (simulate === undefined && existsSync(simulatedTree(stateDir)))
    process.stderr.write('netdra: there are simulated VFs, too: --simulate, as the driver has it, lists them\n');
}
