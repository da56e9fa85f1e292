export { AddressAllocator, type AddressWish, type AllocatorOptions, type AssignedAddresses } from './allocator.ts';
