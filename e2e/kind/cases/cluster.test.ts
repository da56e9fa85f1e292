import { describeCluster } from '../../cluster/describe-cluster.ts';
import { readTarget } from '../../cluster/target.ts';

const target = readTarget(process.env);
describeCluster('a cluster', async () => ({ target }), target);
