import { pod } from './needs.ts';
import { altered, inCni, inPart, inPods, type PlantedBug } from './plant.ts';

/** Bugs in what is left of a pod when it ends. */
export const teardownBugs: readonly PlantedBug[] = [
  {
    name: 'alternative-names-on-the-host',
    what: 'a VF comes to the host with the alternative names that its pod has given it',
    needs: pod(({ mutations }) => mutations > 0),
    plant: inPods(() => ({ removeAltNames: async () => undefined })),
  },
  {
    name: 'del-for-another-pod',
    what: 'a CNI plugin gets a DEL without the name of the pod',
    needs: pod(({ claims }) => claims.some(({ attach, ipam }) => attach === 'cni' || ipam)),
    plant: inCni((cni) => {
      const nameless = <T extends { args?: Record<string, string> }>(attachment: T): T => {
        const { K8S_POD_NAME: _name, ...args } = attachment.args ?? {};
        return { ...attachment, args };
      };
      return {
        delete: (attachment, options) => cni.delete(nameless(attachment), options),
        ipamDelete: (attachment, options) => cni.ipamDelete(nameless(attachment), options),
      };
    }),
  },
  {
    name: 'reservation-ends-unnoticed',
    what: 'a claim that its next pod waits for is looked at in regular rounds only while it is reserved for its earlier pod, too',
    needs: pod((_pod, next) => next?.takesOver === true),
    plant: inPart('sandboxes', (sandboxes, { disk: { store } }) =>
      altered(sandboxes, { hasPod: (uid) => store.claimsOfPod(uid).length > 0 && sandboxes.hasPod(uid) }),
    ),
  },
];
