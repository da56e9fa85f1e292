import { RtnlConnection } from '../../src/node/netlink/index.ts';
import { TestNetns } from '../doubles/netns.ts';

/** A host's and a pod's network namespace, and a connection into each. */
export class HostAndPod implements Disposable {
  protected readonly stack = new DisposableStack();
  readonly host = this.stack.use(new TestNetns('host'));
  readonly pod = this.stack.use(new TestNetns('pod'));
  readonly hostHandle = this.stack.use(this.host.open());
  readonly podHandle = this.stack.use(this.pod.open());
  readonly hostConnection = this.stack.use(RtnlConnection.open(this.hostHandle));
  readonly podConnection = this.stack.use(RtnlConnection.open(this.podHandle));

  [Symbol.dispose](): void {
    this.stack.dispose();
  }
}
