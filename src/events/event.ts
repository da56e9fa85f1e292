/** What an event is about. The namespace is that of the event, too; events of cluster-scoped objects are in `default`. */
export interface ObjectReference {
  apiVersion: string;
  kind: string;
  /** Absent for cluster-scoped objects. */
  namespace?: string;
  name: string;
  uid: string;
}

/** Something that happened to an object, for whoever looks at the object. */
export interface EventReport {
  regarding: ObjectReference;
  /** What else it is about. */
  related?: ObjectReference;
  type: 'Normal' | 'Warning';
  /** CamelCase, for programs: `DeviceNotAttached`. */
  reason: string;
  /** CamelCase, what was being done: `Attaching`. */
  action: string;
  /** A sentence for people; what is beyond 1,024 bytes is cut off. */
  note: string;
}

/** An event as it is sent. Source: events.k8s.io/v1 `Event`. */
export interface KubeEvent extends EventReport {
  apiVersion: 'events.k8s.io/v1';
  kind: 'Event';
  metadata: { namespace: string; name: string };
  /** RFC 3339 with microseconds. */
  eventTime: string;
  reportingController: string;
  reportingInstance: string;
}

/** How often the same has happened, and when last. */
export interface EventSeries {
  /** From 2. */
  count: number;
  /** RFC 3339 with microseconds. */
  lastObservedTime: string;
}

/** `NoteLengthLimit` of the API server. */
const maxNoteBytes = 1024;

/** A text that is not too long for a note, with an ellipsis where it is cut. */
export function formatNote(text: string): string {
  if (Buffer.byteLength(text) <= maxNoteBytes) return text;
  const kept = Buffer.from(text).subarray(0, maxNoteBytes - Buffer.byteLength('…'));
  // A character that is cut in two becomes a replacement character, which is longer.
  return `${kept.toString().replace(/\uFFFD+$/, '')}…`;
}

/** Kubernetes' `MicroTime`; our clock has milliseconds. */
export function formatMicroTime(date: Date): string {
  return date.toISOString().replace('Z', '000Z');
}
