/** In a module of its own, so that a bundle takes no more of that package than this. */
export { loadYaml } from '@kubernetes/client-node';
