export { cpuList, parseCpuList } from './cpu-list.ts';
export { type NumaNodes, readNumaNodes } from './numa-nodes.ts';
