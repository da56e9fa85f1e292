import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PolicyFile } from '../../../src/driver/devices/policy-file.ts';
import { NetdraError } from '../../../src/lib/errors.ts';
import { textFiles } from '../../../src/lib/text-files.ts';
import { scratchDir } from '../scratch.ts';
import { expectThat, type FuzzTarget } from '../target.ts';

const head = 'apiVersion: netdra.dev/v1alpha1\nkind: InventoryPolicy\n';
const texts = [
  head,
  `${head}pfs:\n- select: {name: ens1f0}\n  vfs: 0-3,6\n  numVfs: 8\n- select: {vendor: "8086", driver: [i40e, ice]}\n`,
  `${head}pfs:\n- select:\n    pciAddress: ["0000:3b:00.0", "0000:3b:00.1"]\n  allowInUse: true\n  vfDriver: vfio-pci\n`,
  `${head}nics:\n- select: {linkType: infiniband}\n  resourceName: example.com/ib\nresourceName: example.com/sriov\n`,
  `${head}pfs: [{select: &s {name: a}}, {select: *s, vfs: "1"}]\n`,
];

/** A policy file as written by an operator, or by a faulty program. */
export const target: FuzzTarget = {
  name: 'inventory-policy',
  errors: [NetdraError],
  shape: 'json',
  dictionary: [
    '__proto__: ',
    '&a ',
    '*a',
    '<<: ',
    '!!binary ',
    '!!js/function ',
    '---\n',
    '0-3',
    '999-0',
    '? ',
    '- ',
    '|\n',
  ],
  seeds: () => [
    ...texts.map((text) => Buffer.from(text)),
    Buffer.from(JSON.stringify({ apiVersion: 'netdra.dev/v1alpha1', kind: 'InventoryPolicy', pfs: [{ select: {} }] })),
  ],
  async run(input) {
    const path = join(scratchDir(), 'policy.yaml');
    writeFileSync(path, input);
    const file = new PolicyFile(path, textFiles);
    let reports = 0;
    await file.follow((policy) => {
      reports++;
      for (const { vfs = '0' } of policy?.pfs ?? []) expectThat(/^[\d,-]+$/.test(vfs), `a range ${vfs}`);
    });
    expectThat(reports === 1, `the policy was reported ${reports} times`);
    await file.follow(() => expectThat(false, 'the same policy was reported again'));
  },
};
