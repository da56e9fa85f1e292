import { defined } from '../../lib/defined.ts';
import { printable } from '../../lib/printable.ts';
import { failOverMacs } from '../../node/netlink/index.ts';
import type { FieldReader } from './field-reader.ts';

/**
 * Reports a bond of interfaces that other networks of the pod create. Converts only the settings of the bond, for the class of
 * the requests that replace these networks: which requests these are depends on the pod.
 * Source: bond-cni, bond/bond.go.
 * @param fieldsOfCni fields without an effect on the bond
 */
export function loseBond(fields: FieldReader, fieldsOfCni: readonly string[]): void {
  fields.skip(...fieldsOfCni, 'linksInContainer');
  const mode = fields.text('mode');
  const links = fields.objects('links').map((each) => each.text('name') ?? '?');
  // Without failOverMac, the plugin takes the kernel's default, but netdra does not.
  const failOverMac = failOverMacs[fields.number('failOverMac') ?? 0];
  const bond = defined({
    name: fields.text('ifname') ?? 'bond0',
    mode,
    miimon: Number(fields.text('miimon')) || undefined,
    failOverMac: mode === 'active-backup' ? failOverMac : undefined,
    xmitHashPolicy: fields.text('xmitHashPolicy'),
    primary: fields.text('primary') === undefined ? undefined : `request in place of ${fields.text('primary')}`,
  });
  const settings = JSON.stringify({ bond, ...defined({ mtu: fields.number('mtu'), ipam: fields.raw('ipam') }) });
  const why = 'netdra bonds VFs of one claim, but the networks do not say which claim';
  const todo = `use a class with the VFConfig ${settings} for the requests that replace ${links.join(', ')}`;
  fields.end();
  fields.lose('links', why, printable(todo));
}
