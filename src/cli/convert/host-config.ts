import type { VfConfig } from '../../driver/model/index.ts';
import { selectedKind } from '../selected-kind.ts';

/** Pattern of a converted comparison of an interface's name, which is met only by whole NICs. Strings in the CEL are empty. */
const isInterfaceNamed = /^device\.attributes\[""\]\.pfName( ?== ?""| in \[.*\]|\.\w+\(""\))$/;

/**
 * Setting for addresses and routes of the host, which DRANET moves with a NIC. With a note for people if the kind of devices is
 * unknown or the setting needs attention.
 */
export interface KeptHostConfig {
  config: VfConfig;
  note?: string;
}

const always = 'DRANET moves addresses and routes of the host with a NIC';
const offer = 'the policy offers a NIC that has addresses only if its rule in nics sets allowInUse';

/**
 * Returns the setting of a class that corresponds to DRANET's default for addresses of the host.
 * @param expressions converted selectors of the class, and of the request if there is one
 * @param given settings of class and claim; `keepHostConfig: false` if one of them sets addresses or DHCP
 */
export function keptHostConfig(expressions: readonly string[], given: VfConfig): KeptHostConfig {
  const whole = expressions.map((each) => `(${each})`).join(' && ');
  // A comparison of the interface's name counts only if the CEL does not mention the kind: VFs have interfaces, too.
  const kind = selectedKind(whole) ?? selectedKind(whole, (term) => isInterfaceNamed.test(term));
  if (given.keepHostConfig !== undefined || kind === 'vf') return { config: {} };
  if (kind === 'nic')
    return { config: { keepHostConfig: true }, note: `${always}, so keepHostConfig is set; ${offer}` };
  return { config: {}, note: `${always}: for whole NICs set keepHostConfig: true in the class; ${offer}` };
}
