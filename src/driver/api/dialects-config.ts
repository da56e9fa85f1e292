import * as z from 'zod';
import type { DialectsConfig } from '../model/index.ts';
import type { FieldsOf } from './fields-of.ts';

/** Longest name that leaves room in a file name for a PCI address and the fixed parts. */
const maxResourceNameLength = 220;

const resourceName = z
  .string()
  .max(maxResourceNameLength)
  .regex(
    /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\/[A-Za-z0-9]([-A-Za-z0-9_]{0,61}[A-Za-z0-9])?$/,
    'must be the name that the device plugin had for the resource, such as intel.com/sriov_dpdk',
  );

/**
 * Variables and files of earlier SR-IOV software that containers get besides the metadata file. Absent: none, except for
 * extended resources. Claims may not set it by default, since the author of a DeviceClass knows the images of its pods.
 */
export const dialectsSchema = z
  .strictObject({
    devicePlugin: z
      .strictObject({
        resourceName,
        info: z
          .boolean()
          .describe(
            'Whether to set PCIDEVICE_…_INFO as well. app-netutil mistakes parts of it for addresses. Default: true.',
          )
          .optional(),
      })
      .describe('Variables PCIDEVICE_…, as of the SR-IOV network device plugin.')
      .optional(),
    deviceInfo: z
      .strictObject({ resourceName })
      .describe('A device-info file on the host, for Multus and CNI plugins that look for it by the resource name.')
      .optional(),
    sriovNetwork: z
      .strictObject({
        networkAttachmentDefinition: z
          .string()
          .regex(/^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/, 'must be the name of an object')
          .describe('Value of SRIOVNETWORK_NET_ATTACH_DEF_NAME; absent without it.')
          .optional(),
      })
      .describe('Variables SRIOVNETWORK_…, as of dra-driver-sriov.')
      .optional(),
  } satisfies FieldsOf<DialectsConfig>)
  .describe('Older dialects that containers get besides the metadata file.');
