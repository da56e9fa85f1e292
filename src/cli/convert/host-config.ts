import type { VfConfig } from '../../driver/model/index.ts';

/**
 * Returns which devices of DRANET the converted expressions of a class and a request select: whole NICs (`isSriovVf` is
 * false, or an interface is named), VFs, or `undefined` for perhaps both.
 */
function selectedKind(expressions: readonly string[]): 'nic' | 'vf' | undefined {
  const text = expressions.join(' && ');
  if (text.includes('||')) return undefined;
  if (/!\s*\(device\.attributes\["[^"]*"\]\.kind == "vf"\)|\.kind == "vf"\)\s*(==\s*false|!=\s*true)/.test(text)) {
    return 'nic';
  }
  if (text.includes('.kind == "vf")')) return 'vf';
  return text.includes('.pfName') ? 'nic' : undefined;
}

/** Whether DRANET takes addresses and routes of the host along, with a note for people if they are in question. */
export interface KeptHostConfig {
  config: VfConfig;
  note?: string;
}

const always = 'DRANET moves addresses and routes of the host with a NIC';
const offer = 'the policy offers a NIC with addresses only by allowInUse in nics';

/**
 * Returns what DRANET does with the host's addresses by default, as setting of a class.
 * @param expressions converted selectors of the class, and of the request if there is one
 * @param given settings of class and claim; `keepHostConfig: false` if one of them sets addresses or DHCP
 */
export function keptHostConfig(expressions: readonly string[], given: VfConfig): KeptHostConfig {
  const kind = selectedKind(expressions);
  if (given.keepHostConfig !== undefined || kind === 'vf') return { config: {} };
  if (kind === 'nic')
    return { config: { keepHostConfig: true }, note: `${always}, so keepHostConfig is set; ${offer}` };
  return { config: {}, note: `${always}: for whole NICs set keepHostConfig: true in the class; ${offer}` };
}
