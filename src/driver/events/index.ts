export type { EventReport, KubeEvent } from './event.ts';
export { EventWriter } from './event-writer.ts';
export { FailureEvents } from './failure-events.ts';
export { withClaimEvents, withPodEvents } from './with-events.ts';
