/** Older dialects that containers get besides the metadata file. A dialect that is absent is not written. */
export interface DialectsConfig {
  /** Variables `PCIDEVICE_…`, and `PCIDEVICE_…_INFO` unless `info` is false. */
  devicePlugin?: { resourceName: string; info?: boolean | undefined } | undefined;
  /** Device-info file on the host. */
  deviceInfo?: { resourceName: string } | undefined;
  /** Variables `SRIOVNETWORK_…`. */
  sriovNetwork?: { networkAttachmentDefinition?: string | undefined } | undefined;
}
