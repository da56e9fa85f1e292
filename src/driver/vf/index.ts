export { Attachments, type AttachmentsOptions } from './attachments.ts';
export { HostLinks, type VfHost } from './host-link.ts';
export { PodLinks } from './pod-links.ts';
export { left, type VfState } from './strategy.ts';
