import { existsSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { SriovError, Sysfs } from '../../../src/node/sriov/index.ts';
import { layTree } from '../../unit/node/sriov/pci-tree.ts';
import { scratchDir } from '../scratch.ts';
import { expectThat, type FuzzTarget, utf8 } from '../target.ts';

const pciAddress = '0000:3b:00.0';
const interfaceName = 'ens1';
/** The files of a function, and of its interface, that the driver reads. */
const files = [
  'class',
  'sriov_totalvfs',
  'vendor',
  'device',
  'numa_node',
  ...['address', 'mtu', 'type', 'speed'].map((name) => `net/${interfaceName}/${name}`),
];

/** A PF with two VFs; the fixed parts are created once. @returns the path of sysfs */
function layPf(): string {
  const root = join(scratchDir(), 'sys');
  if (existsSync(root)) return root;
  const vfs = [{ pciAddress: '0000:3b:02.0' }, { pciAddress: '0000:3b:02.1' }];
  const interfaces = [{ name: interfaceName, speed: '25000' }];
  layTree(root, [{ pciAddress, totalVfs: 2, driver: 'i40e', interfaces, vfs }]);
  return root;
}

/** Contents of sysfs: one line for each file. */
export const target: FuzzTarget = {
  name: 'sysfs',
  errors: [SriovError],
  dictionary: ['0x8086', '-1', '0x', '\0', '999999999999', '02:00:00:00:00:01', 'constructor'],
  seeds: () =>
    [
      ['0x020000', '2', '0x8086', '0x1572', '0', '02:00:00:00:00:0a', '1500', '1', '25000'],
      ['0x020700', '0', '0x15b3', '0x1017', '-1', '', '0', '32', '-1'],
    ].map((lines) => Buffer.from(lines.join('\n'))),
  async run(input) {
    const root = layPf();
    const lines = utf8(input).split('\n');
    for (const [index, file] of files.entries()) {
      writeFileSync(join(root, 'bus/pci/devices', pciAddress, file), `${lines[index] ?? ''}\n`);
    }
    const sysfs = new Sysfs(root);
    for (const address of (await sysfs.networkFunctions()).pfs) {
      const pf = await sysfs.pf(address);
      expectThat(Number.isInteger(pf.totalVfs), `${pf.totalVfs} VFs`);
      expectThat(/^[0-9a-f]{4}$/.test(pf.vendor), `vendor ${pf.vendor}`);
      for (const vf of pf.vfs) await sysfs.vf(pf, vf);
    }
    for (const { name, mtuBytes } of await sysfs.interfaces(pciAddress)) {
      expectThat(Number.isInteger(mtuBytes), `an MTU of ${mtuBytes}`);
      const { linkType = 'ethernet', linkSpeedMbps = 0 } = await sysfs.port(pciAddress, name);
      expectThat(['ethernet', 'infiniband'].includes(linkType), 'a link type that there is not');
      expectThat(Number.isInteger(linkSpeedMbps), `a speed of ${linkSpeedMbps}`);
    }
  },
};
