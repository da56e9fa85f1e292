export type { EventReport, KubeEvent, ObjectReference } from './event.ts';
export { EventWriter, type EventWriterOptions } from './event-writer.ts';
export { FailureEvents, type PodName } from './failure-events.ts';
export { withClaimEvents, withPodEvents } from './with-events.ts';
