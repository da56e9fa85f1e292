export type DeviceKind = 'vf' | 'nic';

/** Longest expression that the API server accepts. Source: resource/v1, `CELSelectorExpressionMaxLength`. */
const mostCharacters = 10_240;
/** Maximum depth of parentheses, negations and comparisons with a truth value that are read. */
const mostLevels = 20;

const operators = ['?', '||', '&&'] as const;

/** Returns whether a term without operators is met only by whole NICs. */
type IsOfNic = (term: string) => boolean;

/**
 * Returns the only kind of devices that CEL selects by the attribute `kind`; `undefined` if it may select both. Understands
 * comparisons of `kind`, and their combinations with `!`, `&&` and `||`; any other term may select both kinds.
 * @param isOfNic recognizes further terms that only whole NICs meet
 */
export function selectedKind(expression: string, isOfNic: IsOfNic = () => false): DeviceKind | undefined {
  if (expression.length > mostCharacters) return undefined;
  // Characters in strings are not operators.
  const text = expression
    .replaceAll(/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'/gs, (each) => (/^.(vf|nic).$/.test(each) ? each : '""'))
    .replaceAll(/\s+/g, ' ');
  return kindIn(text, isOfNic, 0);
}

/** Returns whether CEL names the link type InfiniBand: VFs that it selects may have no VLAN. */
export function mentionsInfiniband(expression: string): boolean {
  return /["']infiniband["']/.test(expression);
}

function kindIn(expression: string, isOfNic: IsOfNic, level: number): DeviceKind | undefined {
  if (level > mostLevels) return undefined;
  const text = withoutParentheses(expression);
  if (split(text, '?').length > 1) return undefined;
  const alternatives = split(text, '||');
  if (alternatives.length > 1) {
    const [kind, ...others] = new Set(alternatives.map((each) => kindIn(each, isOfNic, level + 1)));
    return others.length === 0 ? kind : undefined;
  }
  const terms = split(text, '&&');
  if (terms.length > 1) {
    return terms.map((each) => kindIn(each, isOfNic, level + 1)).find((each) => each !== undefined);
  }
  return kindOfTerm(text, level) ?? (isOfNic(text) ? 'nic' : undefined);
}

/** Returns the kind to which a term is equivalent. The negation of the term is then equivalent to the other kind. */
function kindOfTerm(term: string, level: number): DeviceKind | undefined {
  if (level > mostLevels) return undefined;
  const text = withoutParentheses(term);
  if (operators.some((operator) => split(text, operator).length > 1)) return undefined;
  const truth =
    /^(?<inner>.+?) ?(?<is>[=!]=) ?(?<value>true|false)$/.exec(text) ??
    /^(?<value>true|false) ?(?<is>[=!]=) ?(?<inner>.+)$/.exec(text) ??
    /^(?<is>!)(?!=)(?<inner>.+)$/.exec(text);
  if (truth?.groups !== undefined) {
    const { inner = '', is, value = 'true' } = truth.groups;
    const kind = kindOfTerm(inner, level + 1);
    return (is === '==') === (value === 'true') ? kind : opposite(kind);
  }
  const comparison =
    /^[\w.]+\[""\]\.kind ?(?<is>[=!]=) ?["'](?<kind>vf|nic)["']$/.exec(text) ??
    /^["'](?<kind>vf|nic)["'] ?(?<is>[=!]=) ?[\w.]+\[""\]\.kind$/.exec(text);
  const kind = comparison?.groups?.kind as DeviceKind | undefined;
  return comparison?.groups?.is === '==' ? kind : opposite(kind);
}

function opposite(kind: DeviceKind | undefined): DeviceKind | undefined {
  return kind && (kind === 'vf' ? 'nic' : 'vf');
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
