import type { ResourceType } from './api-server-resources.ts';

/** One reason inside of a `Status`: `field` is a path such as `status.devices[0]`. */
export interface StatusCause {
  reason: string;
  message: string;
  field: string;
}

export interface StatusDetails {
  name?: string;
  group?: string;
  kind?: string;
  uid?: string;
  causes?: StatusCause[];
  retryAfterSeconds?: number;
}

const reasonByCode: Record<number, string> = {
  400: 'BadRequest',
  401: 'Unauthorized',
  403: 'Forbidden',
  404: 'NotFound',
  405: 'MethodNotAllowed',
  406: 'NotAcceptable',
  409: 'Conflict',
  410: 'Expired',
  413: 'RequestEntityTooLarge',
  415: 'UnsupportedMediaType',
  422: 'Invalid',
  429: 'TooManyRequests',
  500: 'InternalError',
  503: 'ServiceUnavailable',
  504: 'Timeout',
};

/** An answer that is not the object asked for; the server sends it as a `Status` object. */
export class ApiStatusError extends Error {
  readonly httpStatus: number;
  readonly reason: string;
  readonly details: StatusDetails | undefined;

  constructor(httpStatus: number, message: string, details?: StatusDetails, reason?: string) {
    super(message);
    this.name = 'ApiStatusError';
    this.httpStatus = httpStatus;
    this.reason = reason ?? reasonByCode[httpStatus] ?? 'Unknown';
    this.details = details;
  }

  toStatus(): object {
    return {
      kind: 'Status',
      apiVersion: 'v1',
      metadata: {},
      status: 'Failure',
      message: this.message,
      reason: this.reason,
      ...(this.details === undefined ? {} : { details: this.details }),
      code: this.httpStatus,
    };
  }
}

function detailsOf(type: ResourceType, name: string): StatusDetails {
  return { name, ...(type.group === '' ? {} : { group: type.group }), kind: type.plural };
}

function qualifiedResource(type: ResourceType): string {
  return type.group === '' ? type.plural : `${type.plural}.${type.group}`;
}

export function badRequest(message: string): ApiStatusError {
  return new ApiStatusError(400, message);
}

export function notFound(type: ResourceType, name: string): ApiStatusError {
  return new ApiStatusError(404, `${qualifiedResource(type)} "${name}" not found`, detailsOf(type, name));
}

export function alreadyExists(type: ResourceType, name: string): ApiStatusError {
  const message = `${qualifiedResource(type)} "${name}" already exists`;
  return new ApiStatusError(409, message, detailsOf(type, name), 'AlreadyExists');
}

export function conflict(type: ResourceType, name: string, why: string): ApiStatusError {
  const message = `Operation cannot be fulfilled on ${qualifiedResource(type)} "${name}": ${why}`;
  return new ApiStatusError(409, message, detailsOf(type, name));
}

export const staleObjectMessage =
  'the object has been modified; please apply your changes to the latest version and try again';

/** Watches and continue tokens that reach further back than the history that is kept. */
export function expired(message: string): ApiStatusError {
  return new ApiStatusError(410, message);
}

export const FieldErrorReason = {
  required: 'FieldValueRequired',
  invalid: 'FieldValueInvalid',
  tooMany: 'FieldValueTooMany',
  tooLong: 'FieldValueTooLong',
  duplicate: 'FieldValueDuplicate',
  forbidden: 'FieldValueForbidden',
  unsupported: 'FieldValueNotSupported',
} as const;
export type FieldErrorReason = keyof typeof FieldErrorReason;

/** One thing that is wrong with an object. */
export interface FieldError {
  field: string;
  reason: FieldErrorReason;
  detail: string;
  value?: unknown;
}

const reasonText: Record<FieldErrorReason, string> = {
  required: 'Required value',
  invalid: 'Invalid value',
  tooMany: 'Too many',
  tooLong: 'Too long',
  duplicate: 'Duplicate value',
  forbidden: 'Forbidden',
  unsupported: 'Unsupported value',
};

function formatFieldError(error: FieldError): string {
  const value = error.value === undefined ? '' : `: ${JSON.stringify(error.value)}`;
  return `${reasonText[error.reason]}${value}${error.detail === '' ? '' : `: ${error.detail}`}`;
}

/** 422 with one cause for each error, worded as the API server words it. */
export function invalid(type: ResourceType, name: string, errors: FieldError[]): ApiStatusError {
  const texts = errors.map((error) => `${error.field}: ${formatFieldError(error)}`);
  const joined = texts.length === 1 ? texts[0] : `[${texts.join(', ')}]`;
  const kind = type.group === '' ? type.kind : `${type.kind}.${type.group}`;
  const causes = errors.map((error) => ({
    reason: FieldErrorReason[error.reason],
    message: formatFieldError(error),
    field: error.field,
  }));
  return new ApiStatusError(422, `${kind} "${name}" is invalid: ${joined}`, {
    ...detailsOf(type, name),
    kind: type.kind,
    causes,
  });
}
