/** Returns the CEL of an attribute of the driver. */
export function attributeOf(driver: string, name: string): string {
  return `device.attributes["${driver}"].${name}`;
}

/** Returns CEL that tests whether an expression equals one of some strings. */
export function oneOf(expression: string, values: readonly string[]): string {
  const [only, ...others] = values.map((value) => JSON.stringify(value));
  return others.length === 0 ? `${expression} == ${only}` : `${expression} in [${[only, ...others].join(', ')}]`;
}

const multusDomain = 'device.attributes["k8s.cni.cncf.io"]';

/** Returns CEL that selects the driver's devices with a resource name from a policy. */
export function selectResource(driver: string, resourceName: string, terms: readonly string[] = []): string {
  const all = [
    `device.driver == ${JSON.stringify(driver)}`,
    // The attribute is absent if no rule sets it.
    `"resourceName" in ${multusDomain}`,
    `${multusDomain}.resourceName == ${JSON.stringify(resourceName)}`,
    ...terms,
  ];
  return all.join(' &&\n');
}
