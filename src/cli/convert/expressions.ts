/** An attribute of the driver in CEL. */
export function attributeOf(driver: string, name: string): string {
  return `device.attributes["${driver}"].${name}`;
}

/** Whether an expression has one of some texts, in CEL. */
export function oneOf(expression: string, values: readonly string[]): string {
  const [only, ...others] = values.map((value) => JSON.stringify(value));
  return others.length === 0 ? `${expression} == ${only}` : `${expression} in [${[only, ...others].join(', ')}]`;
}

const multusDomain = 'device.attributes["k8s.cni.cncf.io"]';

/** Devices of the driver that a policy gave the name of a resource. */
export function selectResource(driver: string, resourceName: string, terms: readonly string[] = []): string {
  const all = [
    `device.driver == ${JSON.stringify(driver)}`,
    // An attribute that no rule sets is absent.
    `"resourceName" in ${multusDomain}`,
    `${multusDomain}.resourceName == ${JSON.stringify(resourceName)}`,
    ...terms,
  ];
  return all.join(' &&\n');
}
