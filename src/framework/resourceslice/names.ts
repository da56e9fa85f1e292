/** Checks of names in ResourceSlices. Functions named `…Problem` return the fault of a name, or `undefined`. */

const identifier = /^[A-Za-z_][A-Za-z0-9_]*$/;
const number = '(0|[1-9]\\d*)';
const preRelease = `(${number}|\\d*[A-Za-z-][0-9A-Za-z-]*)`;
/** Pattern of a semantic version. Source: semver.org 2.0.0, the regular expression of its FAQ, rewritten. */
const semanticVersion = new RegExp(
  `^${number}\\.${number}\\.${number}(-${preRelease}(\\.${preRelease})*)?(\\+[0-9A-Za-z-]+(\\.[0-9A-Za-z-]+)*)?$`,
);
/** Highest number in a version. Source: github.com/blang/semver, with which the API server parses versions. */
const maxVersionNumber = 2n ** 64n - 1n;
const label = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/;
/** Pattern of a label key's part after the slash, and of label values. */
const qualifiedPart = /^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$/;

export function isDnsSubdomain(text: string): boolean {
  return text.length <= 253 && text.split('.').every((part) => label.test(part));
}

export function dnsLabelProblem(text: string): string | undefined {
  if (text.length <= 63 && label.test(text)) return undefined;
  return `"${text}" must be a DNS label: lower-case letters, digits and "-", at most 63`;
}

/**
 * Checks the name of an attribute or a capacity: `id`, or `domain/id`.
 * @param driver name of the driver. Newer API servers refuse it as a domain, since a name without a domain means the same
 * Source: resource.k8s.io/v1 `QualifiedName`, `DeviceMaxDomainLength`, `DeviceMaxIDLength`.
 */
export function attributeNameProblem(text: string, driver: string): string | undefined {
  const [id = '', domain, ...rest] = text.split('/').reverse();
  if (rest.length > 0) return 'has more than one "/" in its name';
  if (domain === driver) return `must be named "${id}": names of the driver itself have no domain`;
  if (domain !== undefined && !(domain.length <= 63 && isDnsSubdomain(domain))) {
    return `must have a DNS subdomain of at most 63 characters before the "/"`;
  }
  if (id.length <= 32 && identifier.test(id)) return undefined;
  return `must be named by letters, digits and "_", at most 32, not beginning with a digit`;
}

/** Checks a label key. Source: apimachinery label keys: an optional DNS subdomain, then at most 63 characters. */
export function labelKeyProblem(text: string): string | undefined {
  const [name = '', domain, ...rest] = text.split('/').reverse();
  const isDomainFine = domain === undefined || isDnsSubdomain(domain);
  if (rest.length === 0 && isDomainFine && name.length <= 63 && qualifiedPart.test(name)) return undefined;
  return `"${text}" must be a label key such as example.com/link-down`;
}

export function labelValueProblem(text: string): string | undefined {
  if (text === '' || (text.length <= 63 && qualifiedPart.test(text))) return undefined;
  return `"${text}" must be a label value: letters, digits, "-", "_" and ".", at most 63`;
}

export function semverProblem(text: string): string | undefined {
  if (!semanticVersion.test(text)) return `"${text}" must be a semantic version such as 1.2.3`;
  const [core = '', ...preRelease] = text.replace(/\+.*/, '').split('-');
  const numbers = [core, preRelease.join('-')].flatMap((part) => part.split('.')).filter((part) => /^\d+$/.test(part));
  if (numbers.every((each) => BigInt(each) <= maxVersionNumber)) return undefined;
  return `"${text}" must be a semantic version with numbers of at most 64 bits`;
}
