import { aroundPorts, type PortCall } from '../../../src/app/incidents/around-ports.ts';
import type { IncidentEntry } from '../../../src/app/incidents/entry.ts';
import { KubeError, type KubeErrorCode } from '../../../src/framework/kube/index.ts';
import { NetdraError } from '../../../src/lib/errors.ts';
import type { NetlinkErrorCode } from '../../../src/node/netlink/errors.ts';
import { NetlinkError } from '../../../src/node/netlink/index.ts';
import type { Plant } from '../planted/plant.ts';
import type { RecordedKubelet } from './recorded-kubelet.ts';
import type { Story } from './story.ts';

type Trouble = IncidentEntry & { is: 'failure' | 'slow' };

/** How much earlier a call may come in the simulation, whose calls take less time. */
const slackMs = 300;
/** The call that failed is not made in the simulation if none like it was made by then. */
const windowMs = 2_000;

/** Calls that have failed or were slow in a recording do so again: the first like it, not before its time. */
export class Injected {
  readonly #story: Story;
  readonly #left: (Trouble & { dueMs: number; sandboxId: string })[];
  #kubelet: RecordedKubelet | undefined;

  constructor(story: Story, entries: readonly IncidentEntry[], beginMs: number) {
    this.#story = story;
    const sandboxes = new Map(
      entries.flatMap((entry) => ('sandbox' in entry ? [[entry.sandbox.netns, entry.sandbox.id]] : [])),
    );
    this.#left = entries
      .filter((entry): entry is Trouble => entry.is === 'failure' || entry.is === 'slow')
      // What takes long in the simulation by itself, and needs no help to do so.
      .filter(({ port, is }) => port !== 'files' || is === 'failure')
      .map((entry) => {
        const dueMs = entry.atMs - beginMs + story.beginMs - slackMs;
        return { ...entry, dueMs, sandboxId: sandboxes.get(entry.on) ?? '' };
      });
  }

  /** For people: failures that nothing has met. A claim that was slow to be read is prepared when it was. */
  get left(): string[] {
    const failures = this.#left.filter(({ is }) => is === 'failure');
    return failures.map(({ port, what, on, text }) => `${port} ${what} ${on}: ${text}`);
  }

  /** @param kubelet knows which sandbox is which */
  plant(kubelet: () => RecordedKubelet | undefined): Plant {
    return (ports) => {
      this.#kubelet = kubelet();
      return aroundPorts(ports, (call) => {
        const trouble = this.#take(call, ports.clock.nowMs());
        if (trouble === undefined) return call.next();
        ports.logger.info({ port: call.port, call: String(call.name) }, `as recorded: ${trouble.text ?? 'slow'}`);
        return this.#apply(trouble, call, (ms) => ports.clock.sleep(ms));
      });
    };
  }

  #take(call: PortCall, nowMs: number): Trouble | undefined {
    const index = this.#left.findIndex((entry) => {
      const isDue = entry.dueMs <= nowMs && nowMs <= entry.dueMs + windowMs;
      return entry.port === call.port && entry.what === call.name && isDue && this.#isSame(entry, call);
    });
    return index === -1 ? undefined : this.#left.splice(index, 1)[0];
  }

  #isSame({ port, on, sandboxId }: Trouble & { sandboxId: string }, call: PortCall): boolean {
    if (port === 'pod') return this.#kubelet?.sandboxes.get(sandboxId)?.path === call.on();
    if (port === 'api') return kindOf(on) === kindOf(call.on());
    if (port === 'card') return this.#story.addresses.get(on) === call.on();
    return true;
  }

  #apply(trouble: Trouble, { next }: PortCall, sleep: (ms: number) => Promise<void>): unknown {
    if (trouble.is === 'slow') return sleep(trouble.ms).then(next);
    const error = errorOf(trouble);
    if (synchronous.includes(trouble.port)) throw error;
    return sleep(trouble.ms).then(() => Promise.reject(error));
  }
}

/** Their calls return no promises. */
const synchronous = ['store', 'networks'];

/** A request without names and UIDs: `PATCH resourceclaims`. */
function kindOf(request: string): string {
  const [method = '', path = ''] = request.split(' ');
  const kinds = ['resourceclaims', 'resourceslices', 'deviceclasses', 'events', 'pods', 'nodes', 'namespaces'];
  return `${method} ${kinds.find((kind) => path.includes(`/${kind}`)) ?? path}`;
}

function errorOf({ port, code = '', errno, httpStatus, text = '' }: Trouble): Error {
  const details = { retriable: true };
  if (errno !== undefined) return new NetlinkError(code as NetlinkErrorCode, text, { ...details, errno });
  if (port !== 'api') return new NetdraError(code, text, details);
  return new KubeError(code as KubeErrorCode, text, {
    ...details,
    ...(httpStatus === undefined ? {} : { httpStatus }),
  });
}
