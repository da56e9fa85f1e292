/** Pod events that every NRI version knows, with their numbers. */
export const PodEvent = { runPodSandbox: 1, stopPodSandbox: 2, removePodSandbox: 3 } as const;
export type PodEventName = keyof typeof PodEvent;

export const podEventNames = Object.keys(PodEvent) as PodEventName[];

/** Events that a plugin can subscribe to here. NRI has ten more, all but two of them about containers. */
export const SubscribedEvent = { ...PodEvent, createContainer: 4 } as const;
export type EventName = keyof typeof SubscribedEvent;

export const eventNames = Object.keys(SubscribedEvent) as EventName[];

/** The name of an event by its number; `undefined` for events that are not handled here. */
export function podEventName(event: number): PodEventName | undefined {
  return podEventNames.find((name) => PodEvent[name] === event);
}

export function eventBit(event: number): number {
  return 1 << (event - 1);
}

/**
 * The subscription for a plugin that handles these events.
 *
 * Never 0, which requests all events that the runtime knows, including those of containers: a plugin that handles no
 * event is subscribed to the rarest one, which is answered on its behalf. Nor a bit that an old runtime does not know:
 * that would end the registration.
 * Source: containerd/nri pkg/api/event.go.
 */
export function eventMask(handled: readonly EventName[]): number {
  const mask = handled.reduce((bits, name) => bits | eventBit(SubscribedEvent[name]), 0);
  return mask === 0 ? eventBit(PodEvent.removePodSandbox) : mask;
}

/** The method of the plugin that a runtime calls for an event: `RunPodSandbox`. */
export function methodOf(event: EventName): string {
  return `${event[0]?.toUpperCase()}${event.slice(1)}`;
}
