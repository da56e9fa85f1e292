import type { LinkType } from '../node/sriov/net-interface.ts';

export type DeviceKind = 'vf' | 'nic';

/** Longest expression that the API server accepts. Source: resource/v1, `CELSelectorExpressionMaxLength`. */
const mostCharacters = 10_240;
/** Maximum depth of parentheses, negations and comparisons with a truth value that are read. */
const mostLevels = 20;

const operators = ['?', '||', '&&'] as const;

/** Returns whether a term without operators is met only by whole NICs. */
type IsOfNic = (term: string) => boolean;

/** An attribute of devices that has one of two values. */
interface TwoValuedAttribute<Value extends string> {
  name: string;
  values: readonly [Value, Value];
  /** Returns the value of all devices that meet a term without operators, other than a comparison of the attribute. */
  impliedBy?: (term: string) => Value | undefined;
}

/**
 * Returns the only kind of devices that CEL selects by the attribute `kind`; `undefined` if it may select both. Understands
 * comparisons of `kind`, and their combinations with `!`, `&&` and `||`; any other term may select both kinds.
 * @param isOfNic recognizes further terms that only whole NICs meet
 */
export function selectedKind(expression: string, isOfNic: IsOfNic = () => false): DeviceKind | undefined {
  const impliedBy = (term: string) => (isOfNic(term) ? 'nic' : undefined);
  return selectedValue(expression, { name: 'kind', values: ['vf', 'nic'], impliedBy });
}

/**
 * Returns the only link type of devices that CEL selects; `undefined` if it may select both by the attribute `linkType`.
 * Devices are taken as Ethernet if CEL does not name that attribute.
 */
export function selectedLinkType(expression: string): LinkType | undefined {
  if (!expression.includes('linkType')) return 'ethernet';
  return selectedValue<LinkType>(expression, { name: 'linkType', values: ['ethernet', 'infiniband'] });
}

function selectedValue<Value extends string>(
  expression: string,
  attribute: TwoValuedAttribute<Value>,
): Value | undefined {
  if (expression.length > mostCharacters) return undefined;
  const { values } = attribute;
  // Characters in strings are not operators.
  const text = expression
    .replaceAll(/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/gs, (each) =>
      values.some((value) => value === each.slice(1, -1)) ? each : '""',
    )
    .replaceAll(/\s+/g, ' ');
  return valueIn(text, attribute, 0);
}

function valueIn<Value extends string>(
  expression: string,
  attribute: TwoValuedAttribute<Value>,
  level: number,
): Value | undefined {
  if (level > mostLevels) return undefined;
  const text = withoutParentheses(expression);
  if (split(text, '?').length > 1) return undefined;
  const alternatives = split(text, '||');
  if (alternatives.length > 1) {
    const [value, ...others] = new Set(alternatives.map((each) => valueIn(each, attribute, level + 1)));
    return others.length === 0 ? value : undefined;
  }
  const terms = split(text, '&&');
  if (terms.length > 1) {
    return terms.map((each) => valueIn(each, attribute, level + 1)).find((each) => each !== undefined);
  }
  return valueOfTerm(text, attribute, level) ?? attribute.impliedBy?.(text);
}

/** Returns the value to which a term is equivalent. The negation of the term is then equivalent to the other value. */
function valueOfTerm<Value extends string>(
  term: string,
  attribute: TwoValuedAttribute<Value>,
  level: number,
): Value | undefined {
  if (level > mostLevels) return undefined;
  const { name, values } = attribute;
  const text = withoutParentheses(term);
  if (operators.some((operator) => split(text, operator).length > 1)) return undefined;
  const truth =
    /^(?<inner>.+?) ?(?<is>[=!]=) ?(?<value>true|false)$/.exec(text) ??
    /^(?<value>true|false) ?(?<is>[=!]=) ?(?<inner>.+)$/.exec(text) ??
    /^(?<is>!)(?!=)(?<inner>.+)$/.exec(text);
  if (truth?.groups !== undefined) {
    const { inner = '', is, value: wanted = 'true' } = truth.groups;
    const value = valueOfTerm(inner, attribute, level + 1);
    return (is === '==') === (wanted === 'true') ? value : opposite(value, values);
  }
  const comparison =
    /^[\w.]+\[""\]\.(?<name>\w+) ?(?<is>[=!]=) ?["'](?<value>\w+)["']$/.exec(text) ??
    /^["'](?<value>\w+)["'] ?(?<is>[=!]=) ?[\w.]+\[""\]\.(?<name>\w+)$/.exec(text);
  if (comparison?.groups?.name !== name) return undefined;
  const value = values.find((each) => each === comparison.groups?.value);
  return comparison.groups.is === '==' ? value : opposite(value, values);
}

function opposite<Value extends string>(
  value: Value | undefined,
  [one, other]: readonly [Value, Value],
): Value | undefined {
  return value && (value === one ? other : one);
}

/** Splits an expression at an operator, except within parentheses. */
function split(text: string, operator: (typeof operators)[number]): string[] {
  const operands = [''];
  let depth = 0;
  for (const piece of text.split(/(&&|\|\||[?()[\]])/)) {
    if (piece === '(' || piece === '[') depth++;
    if (piece === ')' || piece === ']') depth--;
    if (piece === operator && depth === 0) operands.push('');
    else operands[operands.length - 1] += piece;
  }
  return operands;
}

function withoutParentheses(text: string): string {
  let bare = text.trim();
  for (let level = 0; level < mostLevels && bare.startsWith('('); level++) {
    if (closingOf(bare) !== bare.length - 1) break;
    bare = bare.slice(1, -1).trim();
  }
  return bare;
}

/** Returns the position of the parenthesis that closes the first one. */
function closingOf(text: string): number {
  let depth = 0;
  return [...text].findIndex((each) => {
    if (each === '(') depth++;
    if (each === ')') depth--;
    return depth === 0;
  });
}
