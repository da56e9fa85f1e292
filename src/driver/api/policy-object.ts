import * as z from 'zod';
import { policySpecSchema } from '../../node/inventory/index.ts';
import { labelSelector } from './class-config.ts';

const operatorRule = 'values are needed with In and NotIn, and only there';

/**
 * `spec` of a NetworkDevicePolicy: an inventory policy and a selector of nodes. The CustomResourceDefinition is generated
 * from it (deploy/helm/definitions.ts), so that the API server refuses every policy that the driver would refuse.
 */
export const networkDevicePolicySpec = policySpecSchema.extend({
  nodeSelector: labelSelector
    .refine(
      ({ matchExpressions = [] }) =>
        matchExpressions.every(({ operator, values = [] }) => /Exist/.test(operator) === (values.length === 0)),
      operatorRule,
    )
    .meta({
      description: 'Label selector of the nodes that use the policy. {}: all nodes.',
      'x-kubernetes-validations': [
        {
          rule: "!has(self.matchExpressions) || self.matchExpressions.all(each, (each.operator in ['Exists', 'DoesNotExist']) == (!has(each.values) || each.values.size() == 0))",
          message: operatorRule,
        },
      ],
    }),
});

/** A whole NetworkDevicePolicy. The API server checks metadata and status. */
export const networkDevicePolicySchema = z.strictObject({
  apiVersion: z.literal('netdra.dev/v1alpha1'),
  kind: z.literal('NetworkDevicePolicy'),
  metadata: z.looseObject({ name: z.string() }),
  spec: networkDevicePolicySpec,
  status: z.unknown().optional(),
});
