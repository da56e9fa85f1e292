import type { KubernetesObject, V1ValidatingAdmissionPolicy } from '@kubernetes/client-node';
import { Environment } from '@marcbachmann/cel-js';

export interface AdmissionRequest {
  operation: 'CREATE' | 'UPDATE' | 'DELETE';
  /** e.g. `resourceslices` */
  resource: string;
  object?: object;
  oldObject?: object;
  namespace?: string;
  userInfo?: { username: string; extra?: Record<string, string[]> };
}

/**
 * Why the policies refuse a request, as the API server would say it; empty when they let it pass. An expression that
 * fails refuses, as `failurePolicy: Fail` says.
 */
export function review(policies: readonly KubernetesObject[], request: AdmissionRequest): string[] {
  return policies.flatMap((policy) => reviewOne(policy as V1ValidatingAdmissionPolicy, request));
}

function reviewOne({ spec }: V1ValidatingAdmissionPolicy, request: AdmissionRequest): string[] {
  const { object = null, oldObject = null, userInfo = { username: 'system:admin' }, namespace = '' } = request;
  const rules = spec?.matchConstraints?.resourceRules ?? [];
  const isMatched = rules.some(
    ({ operations, resources }) => operations?.includes(request.operation) && resources?.includes(request.resource),
  );
  if (!isMatched) return [];
  if (spec?.failurePolicy !== 'Fail') throw new Error('failurePolicy: Fail is expected');
  const env = new Environment({ enableOptionalTypes: true });
  for (const name of ['object', 'oldObject', 'request', 'variables']) env.registerVariable(name, 'dyn');
  const variables: Record<string, unknown> = {};
  const facts = {
    object,
    oldObject,
    request: { operation: request.operation, namespace, userInfo: { extra: {}, ...userInfo } },
    variables,
  };
  const evaluate = (expression: string): unknown => env.evaluate(expression, facts);
  if (!(spec.matchConditions ?? []).every(({ expression }) => evaluate(expression))) return [];
  for (const { name, expression } of spec.variables ?? []) variables[name] = evaluate(expression);
  return (spec.validations ?? []).flatMap(({ expression, message, messageExpression }) => {
    if (evaluate(expression) === true) return [];
    return [messageExpression === undefined ? (message ?? expression) : String(evaluate(messageExpression))];
  });
}
