/** Pod events that every NRI version knows, with their numbers. */
export const PodEvent = { runPodSandbox: 1, stopPodSandbox: 2, removePodSandbox: 3 } as const;
export type PodEventName = keyof typeof PodEvent;

export const podEventNames = Object.keys(PodEvent) as PodEventName[];

/** Events that a plugin of this library can subscribe to. NRI has ten more, eight of them about containers. */
export const SubscribedEvent = { ...PodEvent, createContainer: 4 } as const;
export type EventName = keyof typeof SubscribedEvent;

export const eventNames = Object.keys(SubscribedEvent) as EventName[];

/** Returns the name of the event with this number; `undefined` for events that the library does not handle. */
export function podEventName(event: number): PodEventName | undefined {
  return podEventNames.find((name) => PodEvent[name] === event);
}

export function eventBit(event: number): number {
  return 1 << (event - 1);
}

/**
 * Returns the subscription for a plugin that handles these events. The mask is never 0, which would subscribe the plugin to
 * all events, including those of containers. A plugin without handlers is subscribed to the rarest event, which the library
 * answers. The mask contains no bit that an old runtime does not know: such a bit would end the registration.
 * Source: containerd/nri pkg/api/event.go.
 */
export function eventMask(handled: readonly EventName[]): number {
  const mask = handled.reduce((bits, name) => bits | eventBit(SubscribedEvent[name]), 0);
  return mask === 0 ? eventBit(PodEvent.removePodSandbox) : mask;
}

/** Returns the plugin method that a runtime calls for an event: `RunPodSandbox`. */
export function methodOf(event: EventName): string {
  return `${event[0]?.toUpperCase()}${event.slice(1)}`;
}
