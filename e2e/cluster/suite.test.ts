import { describeAddressPools } from './cases/address-pools.ts';
import { describeAlphaGates } from './cases/alpha-gates.ts';
import { describeDefaultNetwork } from './cases/default-network.ts';
import { describeExampleDriver } from './cases/example-driver.ts';
import { describeFaults } from './cases/faults.ts';
import { describeInstalledDriver } from './cases/installed-driver.ts';
import { describeMetadataFlag } from './cases/metadata-flag.ts';
import { describeNuma } from './cases/numa.ts';
import { describeSlowDevices } from './cases/slow-devices.ts';
import { describeStorm } from './cases/storm.ts';
import { describeTools } from './cases/tools.ts';
import { describeWhereabouts } from './cases/whereabouts.ts';
import { describeCluster } from './describe-cluster.ts';
import { InstalledDriver } from './node/driver.ts';
import { NodeCheck } from './node/node-check.ts';
import { bootIdPath, RealNode } from './node/real-node.ts';
import { alphaGates, isSince, readPrograms } from './programs.ts';

const programs = readPrograms(process.env);
const title = `Kubernetes ${programs.kubernetesVersion} with ${programs.runtimeLabel}`;
const options = { simulated: true, admissionPolicies: true };
// Enabled by default from 1.36.
const newFeatures = { DRAExtendedResource: true, ResourceHealthStatus: true };
const defaultGates = isSince(programs.kubernetesVersion, '1.36') ? {} : newFeatures;
const featureGates = programs.alpha ? alphaGates : defaultGates;

/** Two PFs with 40 VFs each. A machine with one NUMA node has CPUs near the second one only. */
const simulate = '2x40@1:0';

let node: RealNode;
let driver: InstalledDriver;

describeCluster(
  title,
  async () => {
    await using stack = new AsyncDisposableStack();
    node = stack.use(await RealNode.start({ ...programs, featureGates, pinsCpus: true, syncFrequency: '3s' }));
    driver = await InstalledDriver.install(node, {
      simulate,
      cni: true,
      addressPools: true,
      listAttributes: programs.alpha,
      // The check after each test waits for state that only reconciliation restores.
      extraArgs: [`--boot-id-path=${bootIdPath}`, '--reconcile-interval=10'],
    });
    const { target } = driver;
    const owned = stack.move();
    const openCheck = async () => {
      const check = new NodeCheck(node, target);
      return () => check.expectRestored();
    };
    return { target, close: () => owned.disposeAsync(), openCheck };
  },
  options,
  (get) => {
    describeInstalledDriver(get, () => node);
    describeTools(get, () => node, simulate);
    describeExampleDriver(get, () => node);
    describeMetadataFlag(get, () => driver);
    describeNuma(get, () => node, programs.alpha);
    if (programs.alpha) describeAlphaGates(get, () => node);
    describeSlowDevices(get, () => node);
    describeWhereabouts(get, () => node);
    describeAddressPools(get, () => node);
    describeDefaultNetwork(get, () => node, simulate);
    describeFaults(get, () => node);
    describeStorm(get, () => node);
  },
);
