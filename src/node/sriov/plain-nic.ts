import { SriovError } from './errors.ts';

/**
 * A plain NIC has no PF that could set properties for it. Its MAC is set on its interface, in the pod, if it has one.
 * @param asked the requested properties
 * @throws SriovError `no-vf` with the properties that it cannot have
 */
export function assertNoVfProperties(pciAddress: string, asked: object, toUserSpace = false): void {
  const refused = Object.keys(asked).filter((property) => toUserSpace || property !== 'hardwareAddress');
  if (refused.length === 0) return;
  const what = refused.map((property) => (property === 'hardwareAddress' ? 'another MAC in user space' : property));
  throw new SriovError('no-vf', `${pciAddress} is a plain NIC and cannot have ${what.join(', ')}`, {
    device: pciAddress,
    hint: 'only a PF can set this, for its virtual functions: leave it out, or let the claim select kind "vf"',
  });
}
