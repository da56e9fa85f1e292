import { afterAll, beforeAll, expect, it, vi } from 'vitest';
import { PluginCalls } from '../../../src/framework/kubeletplugin/plugin-calls.ts';
import { countFiles } from '../../bench/ledger/count-files.ts';
import { countStatements } from '../../bench/ledger/count-statements.ts';
import { all, inHandlers, inRequests, onNamespaces, type Plant } from '../../simulation/planted/plant.ts';
import { Simulation } from '../../simulation/simulation.ts';
import { NetlinkTrips } from './netlink-trips.ts';

/** What a phase takes, by what it is. */
type Page = Record<string, number>;

const pages = new Map<string, Page>();
/** Absent: nothing is counted. */
let page: Page | undefined;

const count = (what: string) => {
  if (page !== undefined) page[what] = (page[what] ?? 0) + 1;
};
const turnTo = (phase: string) => {
  page = pages.get(phase) ?? {};
  pages.set(phase, page);
};

const countHooks: Plant = inHandlers((handlers) => ({
  runPodSandbox: (pod, context) => {
    turnTo('RunPodSandbox');
    return handlers.runPodSandbox?.(pod, context);
  },
  createContainer: (pod, container, context) => {
    turnTo('CreateContainer');
    const answer = handlers.createContainer?.(pod, container, context);
    // While the container runs, only what is done now and then for all pods.
    page = undefined;
    return answer;
  },
  stopPodSandbox: (pod, context) => {
    turnTo('StopPodSandbox');
    return handlers.stopPodSandbox?.(pod, context);
  },
}));

/** Counts calls of all methods, by `prefix` and the method, and their trips to a thread. */
function counting<T extends object>(object: T, prefix: string): T {
  const trips = new NetlinkTrips(() => count('threadTrips'));
  return new Proxy(object, {
    get(target, key) {
      const value: unknown = Reflect.get(target, key, target);
      if (typeof value !== 'function') return value;
      return (...args: unknown[]) => {
        count(`${prefix} ${String(key)}`);
        const answer: unknown = value.apply(target, args);
        if (answer instanceof Promise) trips.add(key, answer);
        return answer;
      };
    },
  });
}

const countKernel: Plant = onNamespaces((networks) => ({
  host: { ...networks.host, connection: counting(networks.host.connection, 'host:') },
  open: (path) => {
    count('open namespace');
    const opened = networks.open(path);
    return opened && { ...opened, connection: counting(opened.connection, 'pod:') };
  },
}));

const countRequests: Plant = inRequests((request, send) => {
  count(`${request.method} ${/\/(resourceclaims|pods|events|[a-z]+(?=\/[^/]+$|$))/.exec(request.path)?.[1]}`);
  return send(request);
});

let simulation: Simulation;
const patches = new DisposableStack();
beforeAll(() => {
  patches.use(countStatements(count));
  simulation = patches.use(new Simulation(all(countHooks, countKernel, countRequests)));
  patches.use(countFiles(count));
  for (const name of ['nodePrepareResources', 'nodeUnprepareResources'] as const) {
    const original = PluginCalls.prototype[name];
    const spy = vi.spyOn(PluginCalls.prototype, name);
    spy.mockImplementation(async function (this: PluginCalls, ...args: Parameters<typeof original>) {
      turnTo(name);
      const answer = await original.apply(this, args);
      if (name === 'nodeUnprepareResources') page = undefined;
      return answer;
    } as typeof original);
    patches.defer(() => spy.mockRestore());
  }
});
afterAll(() => patches.dispose());

/** A change of these figures is paid by every pod of a node: see `npm run bench -- --only pod`. */
it('the driver handles a pod with one VF with the recorded number of files, transactions, requests and thread calls', async () => {
  const { violation, trace } = await simulation.runPlan((plan) => ({
    ...plan,
    pods: plan.pods.map((pod) => ({
      ...pod,
      deletedAfterMs: 1_500,
      claims: pod.claims.map((claim) => ({ ...claim, attach: 'netlink', config: { addresses: ['192.0.2.7/24'] } })),
    })),
  }));
  expect(violation).toBeUndefined();
  expect(trace.map(([, , what]) => what)).toContainEqual(expect.stringMatching(/^info unprepared a claim/));
  expect(Object.fromEntries(pages)).toMatchInlineSnapshot(`
    {
      "CreateContainer": {},
      "RunPodSandbox": {
        "PATCH resourceclaims": 1,
        "filesLookedAt": 3,
        "filesOpened": 6,
        "filesRead": 2,
        "filesRenamed": 1,
        "filesWritten": 3,
        "host: addresses": 1,
        "host: link": 3,
        "host: links": 1,
        "host: qdisc": 2,
        "host: setLink": 1,
        "host: vfInfos": 1,
        "open namespace": 1,
        "pod: addAddress": 1,
        "pod: addresses": 1,
        "pod: link": 4,
        "pod: setLink": 1,
        "statements": 4,
        "threadTrips": 13,
        "transactions": 1,
      },
      "StopPodSandbox": {
        "filesLookedAt": 3,
        "filesOpened": 5,
        "filesRead": 1,
        "filesRemoved": 1,
        "filesRenamed": 1,
        "filesWritten": 2,
        "host: addresses": 1,
        "host: link": 5,
        "host: qdisc": 2,
        "open namespace": 1,
        "pod: link": 3,
        "pod: setLink": 2,
        "statements": 3,
        "threadTrips": 10,
        "transactions": 1,
      },
      "nodePrepareResources": {
        "GET deviceclasses": 2,
        "GET resourceclaims": 1,
        "directoriesMade": 3,
        "filesLookedAt": 1,
        "filesOpened": 7,
        "filesRenamed": 1,
        "filesWritten": 1,
        "host: addresses": 1,
        "host: link": 1,
        "host: links": 2,
        "host: qdisc": 2,
        "host: reachableAddresses": 1,
        "host: vfInfos": 1,
        "statements": 16,
        "threadTrips": 6,
        "transactions": 2,
      },
      "nodeUnprepareResources": {
        "filesLookedAt": 2,
        "filesOpened": 2,
        "filesRemoved": 2,
        "host: addresses": 1,
        "host: link": 6,
        "host: links": 1,
        "host: qdisc": 2,
        "host: vfInfos": 3,
        "statements": 9,
        "threadTrips": 11,
        "transactions": 1,
      },
    }
  `);
});
