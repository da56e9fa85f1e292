import { join } from 'node:path';
import { DriftRecord, DriftReport, PfDriftSweep } from '../../../../src/driver/drift/index.ts';
import { FailureEvents } from '../../../../src/driver/events/index.ts';
import type { StoredDevice } from '../../../../src/driver/model/index.ts';
import { Store } from '../../../../src/driver/state/index.ts';
import { toVfWanted } from '../../../../src/driver/vf/index.ts';
import { KeyedMutex } from '../../../../src/lib/keyed-mutex.ts';
import { DeviceNodes, DriverBinding, VfHardware } from '../../../../src/node/sriov/index.ts';
import { RecordingLogger } from '../../../doubles/logger.ts';
import { JumpingClock } from '../../../doubles/quirky-card.ts';
import { SriovCard, type SriovCardOptions } from '../../../doubles/sriov-card.ts';
import { storedClaim, storedDevice } from '../../../doubles/stored-claims.ts';
import { tempDir } from '../../../doubles/temp-dir.ts';

/** A card whose first VFs are in pods, one claim each, and the sweep that keeps their settings. */
export class DriftBench implements Disposable {
  readonly card: SriovCard;
  readonly clock = new JumpingClock();
  readonly store: Store;
  readonly record = new DriftRecord();
  /** `SettingsLost ResourceClaim c0: …` */
  readonly events: string[] = [];
  /** `vlan restored` */
  readonly counts: string[] = [];
  /** Names of claims whose condition has changed. */
  readonly conditions: string[] = [];
  readonly report: DriftReport;
  readonly control: VfHardware;
  readonly binding: DriverBinding;
  /** Of claims. */
  readonly locks = new KeyedMutex();
  /** How often the list of the PF was read. */
  lists = 0;
  readonly #stack = new DisposableStack();
  #sweep: PfDriftSweep;

  constructor(options: SriovCardOptions = {}) {
    const { clock } = this;
    this.card = this.#stack.use(new SriovCard(options));
    this.binding = new DriverBinding(this.card.root, this.card.write, clock);
    const vfInfos: SriovCard['host']['vfInfos'] = async (index) => {
      this.lists++;
      return await this.card.host.vfInfos(index);
    };
    const host = { ...this.card.host, vfInfos };
    const { binding } = this;
    this.control = new VfHardware({ binding, host, clock, nodes: new DeviceNodes(this.card.root) });
    this.store = this.#stack.use(new Store(join(this.#stack.use(tempDir()).path, 'state.db')));
    const events = new FailureEvents({
      report: ({ reason, regarding, note }) =>
        this.events.push(`${reason} ${regarding.kind} ${regarding.name}: ${note}`) > 0,
    });
    events.sandboxSeen({ id: 's0', namespace: 'default', name: 'app', uid: 'p0' });
    this.report = new DriftReport({
      record: this.record,
      events,
      logger: new RecordingLogger(),
      onDrift: (setting, result) => this.counts.push(`${setting} ${result}`),
      onCondition: ({ name }) => this.conditions.push(name),
    });
    this.#sweep = this.#newSweep();
  }

  /** Prepares a VF as a claim asks, and puts it into a pod. */
  async prepare(
    vfIndex: number,
    config: StoredDevice['config'],
    more: Partial<StoredDevice> = {},
  ): Promise<StoredDevice> {
    const address = this.card.address(vfIndex);
    const wanted = toVfWanted(config);
    const before = await this.control.snapshot(address, { wanted });
    await this.control.configure(address, wanted, before);
    const access = await this.control.access(address, { vhost: false, rdma: false });
    const attachment = {
      podNamespace: 'default',
      podName: 'app',
      podUid: `p${vfIndex}`,
      sandboxId: `s${vfIndex}`,
      netnsPath: `/n${vfIndex}`,
    };
    const name = `vf${vfIndex}`;
    const device = storedDevice({ ...address, name, config, before, access, attachment, ...more });
    const identity = { uid: `u${vfIndex}`, namespace: 'default', name: `c${vfIndex}` };
    this.store.putClaim(storedClaim({ identity, podUids: [`p${vfIndex}`], devices: [device] }));
    this.lists = 0;
    return device;
  }

  async round(signal = new AbortController().signal): Promise<void> {
    await this.clock.sleep(60_000);
    await this.#sweep.sweep(signal);
  }

  /** A new process of the driver. */
  restart(): void {
    this.#sweep = this.#newSweep();
  }

  #newSweep(): PfDriftSweep {
    return new PfDriftSweep({
      store: this.store,
      control: this.control,
      locks: this.locks,
      clock: this.clock,
      logger: new RecordingLogger(),
      onRestored: (claim, device, drifts) => this.report.restored(claim, device, drifts),
      onCompared: (claim, device, found) => this.report.pfCompared(claim, device, found),
    });
  }

  [Symbol.dispose](): void {
    this.#stack.dispose();
  }
}
