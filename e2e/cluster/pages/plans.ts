import { repository } from '../../../scripts/run-command.ts';

/**
 * How the tests run the commands of the operators' pages on their cluster. Commands are selected by a pattern; a test
 * fails for a pattern that no command of the page matches.
 */
export interface PagePlan {
  page: string;
  /** Commands that are not run, with the reason. All others are. */
  notRun?: [RegExp, reason: string][];
  /** Commands that come before the first one of the page. */
  setUp?: string[];
  /** Commands that come after the last one, whatever failed. */
  tearDown?: string[];
  /** Commands before one of the page: what its text asks for in words, and what makes room for another install. */
  before?: [RegExp, string[]][];
  /** Commands after one of the page. */
  after?: [RegExp, string[]][];
  /** Arguments that are added to a command. */
  additions?: [RegExp, string][];
  /** What a command has to print, in addition to ending with exit code 0. */
  output?: [RegExp, RegExp][];
}

/** Values of this cluster that replace the names on the pages. */
export interface Site {
  /** `127.0.0.1:PORT`, without TLS. */
  registry: string;
  kubeconfig: string;
  node: string;
  /** File with values of the chart. */
  values: string;
  /** File with the objects of `my-pod`, a pod with a VF by the claim `my-claim`. */
  holder: string;
}

/** Replaced in every command, in this order. */
export const placeholders: [string, (site: Site) => string][] = [
  ['registry.example.com', ({ registry }) => registry],
  ['<registry>', ({ registry }) => registry],
  ['<kubeconfig>', ({ kubeconfig }) => kubeconfig],
  ['<values>', ({ values }) => values],
  ['<my-pod.yaml>', ({ holder }) => holder],
  ['<repository>', () => repository],
  ['worker-1', ({ node }) => node],
  [
    'netdra-abcde',
    () =>
      '$(kubectl --namespace netdra get pods --output name --field-selector status.phase=Running --sort-by .metadata.creationTimestamp | tail -n 1 | cut -d / -f 2)',
  ],
];

/** Also where the page before has left a release. */
const install = `helm upgrade --install netdra deploy/helm/netdra --namespace netdra --create-namespace --wait --timeout 2m \
--set image.repository=registry.example.com/netdra --values <values>`;
const uninstall = 'helm uninstall netdra --namespace netdra --wait';
const startPod = [
  'kubectl apply --filename <my-pod.yaml>',
  'kubectl wait pod/my-pod --for=condition=Ready --timeout=1m',
];
const deletePod = 'kubectl delete --filename <my-pod.yaml>';
const noEngine =
  'needs a container engine; e2e/release builds the Dockerfile with Buildah and pushes the image with crane';
const kind = 'needs kind with an installed container engine';
const mention = 'names a command without its arguments';
/** Sets simulated VFs, and no wait after each update of the DaemonSet. */
const values = '--values <values>';

export const pagePlans: PagePlan[] = [
  {
    page: 'README.md',
    notRun: [
      [/^docker buildx/, noEngine],
      [/^npm test$/, 'CI runs it by itself: .ci/run'],
      [/^netdra doctor$/, mention],
    ],
    setUp: [`${uninstall} --ignore-not-found`],
    tearDown: [uninstall],
    additions: [
      // A node within this one sees the repository itself, not the copy in which commands run.
      [/^npm run demo$/, '--prefix <repository>'],
      [/^helm install/, '--set kubeletPlugin.minReadySeconds=0 --wait --timeout 2m'],
    ],
    output: [
      [/^npm run demo$/, /"interfaceName": "net1"[\s\S]*done in/],
      [/^kubectl get resourceslices/, /sriov\.netdra\.dev/],
    ],
  },
  {
    page: 'docs/operators.md',
    notRun: [
      [/^docker buildx/, noEngine],
      [/^helm test$/, mention],
      [/values-openshift/, 'needs OpenShift'],
      [/ netdra-test$/, 'shows why `helm test` failed, and it does not fail'],
    ],
    before: [
      [/^helm install netdra oci:/, [uninstall]],
      [
        /^kubectl apply --filename deploy\/manifests/,
        [
          uninstall,
          'sed -i "s|localhost/netdra|registry.example.com/netdra|; s|minReadySeconds: .*|minReadySeconds: 0|" deploy/manifests/netdra.yaml',
        ],
      ],
      [/^helm install .*simulate/, ['kubectl delete --filename deploy/manifests/netdra.yaml --wait --timeout=1m']],
      [
        /^kubectl apply .*manifests\/remove/,
        ['sed -i "s|localhost/netdra|registry.example.com/netdra|" deploy/manifests/remove.yaml'],
      ],
    ],
    after: [
      [
        /^kubectl apply --filename deploy\/manifests/,
        ['kubectl --namespace kube-system rollout status daemonset/netdra --timeout 2m'],
      ],
      [
        /^kubectl get --raw .*https:/,
        [
          'helm rollback netdra 1 --namespace netdra --wait --timeout 2m',
          'kubectl --namespace netdra delete secret netdra-tls',
        ],
      ],
    ],
    additions: [
      [/^helm upgrade .*http\.tls/, '--wait --timeout 2m'],
      [/^helm (push|install netdra oci:)/, '--plain-http'],
      [/^helm install netdra (deploy|oci:)/, `--wait --timeout 2m ${values}`],
    ],
    output: [
      [/^kubectl get resourceslices/, /sriov\.netdra\.dev/],
      [/^helm test netdra/, /Phase: +Succeeded/],
      [/^kubectl get --raw/, /\[\+\]nri ok/],
    ],
  },
  {
    page: 'docs/monitoring.md',
    setUp: [install],
    notRun: [
      [/^kubectl netdra$/, mention],
      [/^npm (pack|install)/, 'test/tools/package/package.test.ts packs and installs the package'],
      [/^netdra log$/, 'a command of the image, which kubectl netdra bundle runs'],
      [/^netdra completion bash$/, 'test/unit/cli/completion.test.ts runs it'],
    ],
    before: [[/^kubectl netdra status/, ['kubectl wait nnd/worker-1 --for=create --timeout=30s', ...startPod]]],
    after: [
      [/^kubectl netdra metadata my-claim/, [deletePod]],
      [/^kubectl create clusterrolebinding/, ['kubectl delete clusterrolebinding netdra-viewers']],
      [
        /^kubectl --namespace netdra create rolebinding/,
        ['kubectl --namespace netdra delete rolebinding netdra-viewers'],
      ],
    ],
    output: [
      [/^kubectl --namespace netdra logs netdra-abcde --since/, /"to":"debug","msg":"log level changed"/],
      [/^kubectl netdra status/, /8 devices, 1 allocated, 1 in use/],
      [/^kubectl get nnd$/, /NAME +DRIVER +OFFERED[^\n]*\n\S+ +0\.1\.0 +8 +/],
      [/^kubectl netdra claims/, /my-claim/],
    ],
  },
  {
    page: 'docs/upgrade.md',
    notRun: [[/^helm upgrade$/, mention]],
    setUp: [install],
    after: [[/^kubectl delete crd/, [install]]],
    output: [
      [/^helm get values/, /repository:/],
      [/^helm history/, /Upgrade complete/],
      [/^kubectl drain/, /drained/],
    ],
  },
  {
    page: 'docs/kind.md',
    notRun: [
      [/^docker /, noEngine],
      [/^kind /, kind],
      [/^npm run e2e:kind$/, 'a part of npm run test:all, with --engine own'],
      [/^npm run test:all$/, 'runs the suite that this is a part of'],
      [/^npm run e2e:kind -- --(keep|engine|values|reuse|workers)/, kind],
      [/ node-files /, 'the pod is there only while the cases run, or after one that failed'],
    ],
    setUp: [install],
    tearDown: [`${uninstall} --ignore-not-found`],
    before: [
      [/--existing --values/, [uninstall]],
      [/--existing --no-install/, [install]],
    ],
    additions: [[/--existing/, '-- -t CDI.integration']],
    output: [[/--existing/, /Tests +1 passed/]],
  },
];
