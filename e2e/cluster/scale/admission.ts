import { performance } from 'node:perf_hooks';
import { systemClock } from '../../../src/lib/clock.ts';
import { renderTable } from '../../../test/bench/render.ts';
import { summarize } from '../../../test/bench/stats.ts';
import { parseScrape } from '../../../test/doubles/prometheus.ts';
import { ApiCluster } from '../api/api-cluster.ts';

/** Ours is checked by the chart's policies; the other one has the same bytes, and their match conditions leave it out. */
const drivers = { ours: 'sriov.netdra.dev', reference: 'other.netdra.dev' } as const;
/** All policies together. Source: Kubernetes metrics reference. */
const duration = 'apiserver_admission_controller_admission_duration_seconds';
const ofPolicies = 'name="ValidatingAdmissionPolicy",operation="CREATE",rejected="false",type="validate"';
/** Objects between two looks at the metrics of the API server. */
const batch = 20;
const ns = 'default';

/** A class as the chart's values make them, with settings, limits and open fields. */
function classOf(name: string, driver: string): [path: string, body: object] {
  const parameters = {
    apiVersion: 'netdra.dev/v1alpha1',
    kind: 'VFConfig',
    driver: 'kernel',
    mtu: 1500,
    vf: { spoofCheck: true, trust: false, vlan: 7 },
    overridable: ['mtu'],
    limits: { routes: ['198.51.100.0/24'] },
  };
  const cel = { expression: `device.driver == "${driver}" && device.attributes["${driver}"].kind == "vf"` };
  const spec = { selectors: [{ cel }], config: [{ opaque: { driver, parameters } }] };
  const body = { apiVersion: 'resource.k8s.io/v1', kind: 'DeviceClass', metadata: { name }, spec };
  return ['/apis/resource.k8s.io/v1/deviceclasses', body];
}

function claimOf(name: string, driver: string): [path: string, body: object] {
  const parameters = {
    apiVersion: 'netdra.dev/v1alpha1',
    kind: 'VFConfig',
    interfaceName: 'net1',
    mtu: 1500,
    addresses: ['192.0.2.7/24'],
    routes: [{ destination: '198.51.100.0/24', gateway: '192.0.2.1' }],
  };
  const requests = [{ name: 'vf', exactly: { deviceClassName: 'netdra-kernel' } }];
  const spec = { devices: { requests, config: [{ opaque: { driver, parameters } }] } };
  const body = { apiVersion: 'resource.k8s.io/v1', kind: 'ResourceClaim', metadata: { name, namespace: ns }, spec };
  return [`/apis/resource.k8s.io/v1/namespaces/${ns}/resourceclaims`, body];
}

/**
 * What the chart's admission policies add to the creation of classes, and of claims beside no and many classes. Objects of both
 * sides are created in turns.
 * @param count of classes, and of the claims of each row
 * @returns a table in Markdown
 */
export async function measureAdmission(count: number): Promise<string> {
  await using cluster = await ApiCluster.start();
  const create = ([path, body]: [string, object]) => cluster.admin.client.request({ method: 'POST', path, body });
  const policyTime = async () => {
    const series = parseScrape(await cluster.send('GET', '/metrics'));
    const [sum, count] = ['sum', 'count'].map((suffix) => series.get(`${duration}_${suffix}{${ofPolicies}}`) ?? 0);
    return { sum: sum!, count: count! };
  };
  await untilEnforced(create);
  const rows: string[][] = [];
  const measure = async (what: string, objectOf: typeof claimOf, prefix: string) => {
    const costs = { ours: { ms: [], sum: 0, count: 0 } as Cost, reference: { ms: [], sum: 0, count: 0 } as Cost };
    for (let first = 0; first < count; first += batch) {
      for (const side of ['ours', 'reference'] as const) {
        const before = await policyTime();
        for (let index = first; index < Math.min(first + batch, count); index++) {
          const object = objectOf(`${prefix}-${side}-${index}`, drivers[side]);
          const startedMs = performance.now();
          await create(object);
          costs[side].ms.push(performance.now() - startedMs);
        }
        const after = await policyTime();
        costs[side].sum += after.sum - before.sum;
        costs[side].count += after.count - before.count;
      }
    }
    const [ours, reference] = [costs.ours, costs.reference].map(describeCost);
    rows.push([
      what,
      String(count),
      ...ours!.cells,
      ...reference!.cells,
      (ours!.median / reference!.median).toFixed(2),
    ]);
  };
  await measure('a claim, beside the two classes of the chart', claimOf, 'before');
  await measure('a class', classOf, 'class');
  await measure(`a claim, beside ${count} classes more`, claimOf, 'after');
  const head = ['created', 'objects', 'checked, ms', 'policies, ms', 'not checked, ms', 'policies, ms', 'ratio'];
  return renderTable(head, rows);
}

interface Cost {
  /** Durations of requests. */
  ms: number[];
  /** Seconds and calls of the policies. */
  sum: number;
  count: number;
}

function describeCost({ ms, sum, count }: Cost): { median: number; cells: string[] } {
  const { median } = summarize(ms);
  return { median, cells: [median.toFixed(2), ((sum / count) * 1_000).toFixed(2)] };
}

/** The API server compiles policies some time after they were created. */
async function untilEnforced(create: (object: [string, object]) => Promise<unknown>): Promise<void> {
  for (let attempt = 0; attempt < 240; attempt++) {
    const [path, body] = claimOf(`first-${attempt}`, drivers.ours);
    const wrong = JSON.parse(JSON.stringify(body).replace('"VFConfig"', '"Other"'));
    const isRefused = await create([path, wrong]).then(
      () => false,
      () => true,
    );
    if (isRefused) return;
    await systemClock.sleep(250);
  }
  throw new Error('the admission policies refuse no wrong claim within a minute of their creation');
}
