/** The object that an event is about. Its namespace is also the event's; events of cluster-scoped objects are in `default`. */
export interface ObjectReference {
  apiVersion: string;
  kind: string;
  /** Namespace of the object; absent for cluster-scoped objects. */
  namespace?: string;
  name: string;
  uid: string;
}

/** Texts of an event. */
export interface EventText {
  /** Reason in CamelCase, for programs: `DeviceNotAttached`. */
  reason: string;
  /** Action in CamelCase: `Attaching`. */
  action: string;
  /** Message of the event; cut after 1,024 bytes. */
  note: string;
}

/** Something that happened to an object, for users who look at the object. */
export interface EventReport extends EventText {
  regarding: ObjectReference;
  /** Another object involved in the event. */
  related?: ObjectReference;
  type: 'Normal' | 'Warning';
}

export interface EventReporter {
  /**
   * Queues the event and returns at once. @returns whether the event was accepted: the number of different events is limited
   */
  report(event: EventReport): boolean;
}

/** An event as it is sent. Source: events.k8s.io/v1 `Event`. */
export interface KubeEvent extends EventReport {
  apiVersion: 'events.k8s.io/v1';
  kind: 'Event';
  metadata: { namespace: string; name: string };
  /** Time of the first occurrence, RFC 3339 with microseconds. */
  eventTime: string;
  reportingController: string;
  reportingInstance: string;
}

/** Maximum length of a note: `NoteLengthLimit` of the API server. */
const maxNoteBytes = 1024;

/** Cuts a text to the maximum length of a note, with an ellipsis at the cut. */
export function formatNote(text: string): string {
  if (Buffer.byteLength(text) <= maxNoteBytes) return text;
  const kept = Buffer.from(text).subarray(0, maxNoteBytes - Buffer.byteLength('…'));
  // A character that is cut in two becomes a replacement character, which is removed: it is longer.
  return `${kept.toString().replace(/\uFFFD+$/, '')}…`;
}

/** Formats a Kubernetes `MicroTime`. A Date has milliseconds; the microseconds are zero. */
export function formatMicroTime(date: Date): string {
  return date.toISOString().replace('Z', '000Z');
}
