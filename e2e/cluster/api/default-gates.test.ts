import { afterAll, beforeAll, describe } from 'vitest';
import { describeAddressPools } from './address-pools.ts';
import { ApiCluster } from './api-cluster.ts';
import { describeClaimStatus } from './claim-status.ts';
import { describeClaimStatusPolicy } from './claim-status-policy.ts';
import { describeRefusedLists } from './device-conditions.ts';
import { describeNodeView } from './node-view.ts';
import { describePolicyObjects } from './policy-objects.ts';

describe('with the default feature gates', () => {
  let cluster: ApiCluster;
  beforeAll(async () => {
    cluster = await ApiCluster.start({ values: { addressPools: { enabled: true } } });
  });
  afterAll(async () => await cluster?.[Symbol.asyncDispose]());

  const get = () => cluster;
  describeRefusedLists(get);
  describeClaimStatus(get);
  describeNodeView(get);
  describePolicyObjects(get);
  describeAddressPools(get);
  // Last: it gives the driver's account more permissions.
  describeClaimStatusPolicy(get);
});
