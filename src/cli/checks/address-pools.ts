import { isKubeError, type KubeClient, listAll, ResourceApi, servedVerbs } from '../../framework/kube/index.ts';
import { type Verdict, warning } from '../finding.ts';
import { type Fields, fieldsOf, listOf } from '../multus/contract.ts';

/** Permissions that a driver needs for each kind: the addresses that it assigns are objects. */
export const poolVerbs: Readonly<Record<string, string>> = {
  networkaddresspools: 'get',
  networkaddresses: 'get list create update',
  networkaddressleases: 'get list create update',
};
const kinds = Object.keys(poolVerbs);
export const poolsEffect = 'claims with addressPool fail';

export interface PoolKinds {
  /** Plural names of those of the three kinds that the API server serves. */
  served: string[];
  verdicts: Verdict[];
}

/**
 * Finds missing definitions of these kinds. They are needed if the cluster has one of the definitions, or a class with
 * `addressPool`.
 */
export async function findPoolKinds(driver: string, kube: KubeClient): Promise<PoolKinds> {
  const verbs = await servedVerbs(kube, 'netdra.dev/v1alpha1');
  const served = kinds.filter((kind) => verbs.has(kind));
  const missing = kinds.filter((kind) => !verbs.has(kind));
  if (missing.length === 0 || (served.length === 0 && !(await isPoolNamed(driver, kube))))
    return { served, verdicts: [] };
  const message = `this cluster does not serve ${missing.join(', ')}: ${poolsEffect}`;
  const fix = 'install the CustomResourceDefinitions of the chart: its value addressPools.enabled';
  return { served, verdicts: [warning(message, fix)] };
}

/** Returns whether a class of the driver sets `addressPool`. */
async function isPoolNamed(driver: string, kube: KubeClient): Promise<boolean> {
  const resources = new ResourceApi(kube);
  try {
    const classes = await listAll<Fields>((query) => resources.list({ path: 'deviceclasses', query }));
    return classes
      .flatMap(({ spec }) => listOf(fieldsOf(spec).config))
      .some((entry) => {
        const { driver: own, parameters } = fieldsOf(fieldsOf(entry).opaque);
        return own === driver && fieldsOf(parameters).addressPool !== undefined;
      });
  } catch (error) {
    // The check of permissions reports it.
    if (isKubeError(error, 'api-forbidden')) return false;
    throw error;
  }
}
