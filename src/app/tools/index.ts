export { claimsCommand } from './claims-command.ts';
export { doctorCommand } from './doctor-command.ts';
export { inventoryCommand } from './inventory-command.ts';
export { metadataCommand } from './metadata-command.ts';
export { seccompCommand } from './seccomp-command.ts';
