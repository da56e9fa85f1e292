import { type KubernetesObject, loadYaml } from '@kubernetes/client-node';

/**
 * The objects of a YAML text as they are. `loadAllYaml` would make them instances of the client's classes, without the
 * fields that those do not have: nothing that checks them would see a slip.
 */
export function parseRawYaml(text: string): KubernetesObject[] {
  return text
    .split(/^---$/m)
    .filter((each) => /^[^#\s]/m.test(each))
    .map((each) => {
      // The client leaves alone what has no kind at its top.
      const inside = each.replace(/^(?=.)/gm, '  ');
      return loadYaml<{ object: KubernetesObject }>(`object:\n${inside}`).object;
    });
}
