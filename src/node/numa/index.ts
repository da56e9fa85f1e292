export { cpuList, parseCpuList } from './cpu-list.ts';
export { type NumaNodes, readNearNodes, readNumaNodes } from './numa-nodes.ts';
