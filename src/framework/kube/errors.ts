import { type Pauses, pauseMs } from '../../lib/backoff.ts';
import { type ErrorDetails, NetdraError } from '../../lib/errors.ts';

/** Reasons for which a request to the API server can fail. */
export type KubeErrorCode =
  /** There is no connection to the API server. */
  | 'api-unreachable'
  /** The API server did not answer in time. */
  | 'api-timeout'
  /** 401: the API server does not know the client. */
  | 'api-unauthorized'
  /** 403: a role lacks the permission, or an admission policy refuses the object. */
  | 'api-forbidden'
  /** 404: the object does not exist. */
  | 'api-not-found'
  /** 404: the API server does not serve the group, version or resource. */
  | 'api-unserved'
  /** 409: the object was changed by another client, or exists already. */
  | 'api-conflict'
  /** 410: the resource version is too old to continue the watch or list. */
  | 'api-expired'
  /** 422: the object is invalid. */
  | 'api-invalid'
  /** 429: the API server is overloaded. */
  | 'api-throttled'
  /** The API server answered with an HTTP status without a code of its own, or with invalid JSON. */
  | 'api-failed';

interface KubeErrorDetails extends ErrorDetails {
  httpStatus?: number;
  reason?: string | undefined;
  retryAfterMs?: number | undefined;
}

/** A failed request to the API server. The message ends with the server's own text. */
export class KubeError extends NetdraError<KubeErrorCode, KubeErrorDetails> {
  declare readonly httpStatus: number | undefined;
  declare readonly reason: string | undefined;
  declare readonly retryAfterMs: number | undefined;
}

export function isKubeError(error: unknown, ...codes: KubeErrorCode[]): error is KubeError {
  return error instanceof KubeError && (codes.length === 0 || codes.includes(error.code));
}

/** Returns `undefined` if the work fails with one of these codes. @throws KubeError for other failures */
export async function unless<T>(work: Promise<T>, ...codes: KubeErrorCode[]): Promise<T | undefined> {
  try {
    return await work;
  } catch (error) {
    if (isKubeError(error, ...codes)) return undefined;
    throw error;
  }
}

/** Returns `undefined` if the object does not exist. @throws KubeError for other failures */
export async function unlessMissing<T>(read: Promise<T>): Promise<T | undefined> {
  return await unless(read, 'api-not-found');
}

/**
 * Limit for `Retry-After`, ms: API servers ask for seconds, but a proxy may ask for hours although the server is back much
 * sooner.
 */
const longestRetryAfterMs = 60_000;

/**
 * Returns the pause before the next attempt, ms: at least as long as the server asks for, up to a minute.
 * @param earlierFailures number of consecutive failures before this one
 */
export function retryPauseMs(error: unknown, earlierFailures: number, pauses: Pauses): number {
  const askedMs = isKubeError(error) ? (error.retryAfterMs ?? 0) : 0;
  return Math.max(askedMs, pauseMs(earlierFailures, pauses));
}

const codes: Record<number, KubeErrorCode> = {
  401: 'api-unauthorized',
  403: 'api-forbidden',
  404: 'api-not-found',
  409: 'api-conflict',
  410: 'api-expired',
  422: 'api-invalid',
  429: 'api-throttled',
};

const hints: Partial<Record<KubeErrorCode, string>> = {
  'api-unauthorized': 'the API server rejects the credentials: check the service account token or the kubeconfig',
  'api-forbidden': "the driver's role lacks this permission: compare it with deploy/manifests/netdra.yaml",
};

interface Status {
  kind?: string;
  message?: string;
  reason?: string;
  details?: { name?: string; retryAfterSeconds?: number; causes?: { reason?: string }[] };
}

/**
 * Reason with which the API server refuses to create an object in a namespace that is being deleted. Source: core/v1
 * `NamespaceTerminatingCause`.
 */
export const namespaceTerminating = 'NamespaceTerminating';

/**
 * Converts an unsuccessful response into an error.
 * @param subject the request, as `GET /api/v1/nodes/n`
 * @param body text of the response: a `Status` object, or any text that a proxy wrote
 */
export function toKubeError(subject: string, httpStatus: number, body: string, retryAfter?: string): KubeError {
  const status = parseStatus(body);
  // For an unserved path the response names no object, or is not even a Status.
  const isUnserved = httpStatus === 404 && status.details?.name === undefined;
  const code = isUnserved ? 'api-unserved' : (codes[httpStatus] ?? 'api-failed');
  const retryAfterSeconds = status.details?.retryAfterSeconds ?? parseSeconds(retryAfter);
  const text = status.message ?? (body.trim().slice(0, 200) || 'no message');
  const isEnding = status.details?.causes?.some(({ reason }) => reason === namespaceTerminating) ?? false;
  const reason = isEnding ? namespaceTerminating : status.reason;
  // The refusal is due to the namespace, not to roles.
  const hint = isEnding ? undefined : hints[code];
  return new KubeError(code, `${subject}: the API server answered ${httpStatus}: ${text}`, {
    httpStatus,
    retriable: httpStatus >= 500 || httpStatus === 429 || httpStatus === 409 || httpStatus === 410,
    reason,
    retryAfterMs: retryAfterSeconds && Math.min(retryAfterSeconds * 1_000, longestRetryAfterMs),
    hint,
  });
}

function parseStatus(body: string): Status {
  try {
    const value: Status | null = JSON.parse(body);
    return value?.kind === 'Status' ? value : {};
  } catch {
    return {};
  }
}

/** Parses `Retry-After` in seconds; API servers do not use its other form, a date. */
function parseSeconds(text: string | undefined): number | undefined {
  return text !== undefined && /^\d+$/.test(text) ? Number(text) : undefined;
}
