import type { VfConfig } from '../../driver/model/index.ts';
import { selectedKind } from '../selected-kind.ts';

/** A converted comparison of an interface's name, which is that of a whole NIC. Without the texts of strings. */
const isInterfaceNamed = /^device\.attributes\[""\]\.pfName( ?== ?""| in \[.*\]|\.\w+\(""\))$/;

/** Whether DRANET takes addresses and routes of the host along, with a note for people if they are in question. */
export interface KeptHostConfig {
  config: VfConfig;
  note?: string;
}

const always = 'DRANET moves addresses and routes of the host with a NIC';
const offer = 'the policy offers a NIC that has addresses only if its rule in nics sets allowInUse';

/**
 * Returns what DRANET does with the host's addresses by default, as setting of a class.
 * @param expressions converted selectors of the class, and of the request if there is one
 * @param given settings of class and claim; `keepHostConfig: false` if one of them sets addresses or DHCP
 */
export function keptHostConfig(expressions: readonly string[], given: VfConfig): KeptHostConfig {
  const whole = expressions.map((each) => `(${each})`).join(' && ');
  // VFs have interfaces, too.
  const kind = selectedKind(whole) ?? selectedKind(whole, (term) => isInterfaceNamed.test(term));
  if (given.keepHostConfig !== undefined || kind === 'vf') return { config: {} };
  if (kind === 'nic')
    return { config: { keepHostConfig: true }, note: `${always}, so keepHostConfig is set; ${offer}` };
  return { config: {}, note: `${always}: for whole NICs set keepHostConfig: true in the class; ${offer}` };
}
