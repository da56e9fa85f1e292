import { afterAll, beforeAll, describe } from 'vitest';
import { isSince, readPrograms } from '../programs.ts';
import { ApiCluster } from './api-cluster.ts';
import { describeManyDevices } from './device-conditions.ts';
import { describeNoNodeViews } from './node-view.ts';
import { describeResources } from './resources.ts';
import { describeSlicesPolicy } from './slices-policy.ts';

const { kubernetesVersion } = readPrograms(process.env);
/** Not known, or of another meaning, before 1.36. */
const newGates = { DRAPartitionableDevices: true, DRAListTypeAttributes: true };
const featureGates = {
  DRADeviceTaints: true,
  DRADeviceBindingConditions: true,
  DRAResourceClaimDeviceStatus: true,
  DRAConsumableCapacity: true,
  ...(isSince(kubernetesVersion, '1.36') ? newGates : {}),
};

describe('with all DRA feature gates and API versions', () => {
  let cluster: ApiCluster;
  beforeAll(async () => {
    cluster = await ApiCluster.start({
      featureGates,
      apiVersions: ['resource.k8s.io/v1beta1', 'resource.k8s.io/v1beta2'],
      values: {
        admissionPolicies: { slices: false },
        nodeView: { enabled: false },
        kubeletPlugin: { openClaimFields: ['macAddress'] },
      },
    });
  });
  afterAll(async () => await cluster?.[Symbol.asyncDispose]());

  const get = () => cluster;
  // Installs the policy that the driver publishes its slices under.
  describeSlicesPolicy(get);
  describeResources(get);
  describeManyDevices(get);
  describeNoNodeViews(get);
});
