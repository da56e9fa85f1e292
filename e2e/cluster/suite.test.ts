import { describeCluster } from './describe-cluster.ts';
import { InstalledDriver } from './node/driver.ts';
import { RealNode } from './node/real-node.ts';
import { readPrograms } from './programs.ts';

const programs = readPrograms(process.env);
const title = `Kubernetes ${programs.kubernetesVersion} with ${programs.runtime.name}`;
const options = { simulated: true, admissionPolicies: true };

let node: RealNode;

describeCluster(
  title,
  async () => {
    await using stack = new AsyncDisposableStack();
    node = stack.use(await RealNode.start(programs));
    const driver = stack.use(await InstalledDriver.install(node, { simulate: '2x40' }));
    const owned = stack.move();
    return { target: driver.target, close: () => owned.disposeAsync() };
  },
  options,
  // Cases that kill parts of the node or look into it: describeFaults(get, () => node).
  () => undefined,
);
