import { describeCluster } from '../../cluster/describe-cluster.ts';
import { startNodeCluster } from '../cluster/node-cluster.ts';

// On containerd 1.7 they run from kind-suite.test.ts.
const options = { simulated: true, admissionPolicies: true };
describeCluster('a cluster on containerd 2.1', () => startNodeCluster('2.1'), options);
