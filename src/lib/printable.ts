/** Control and zero-width characters (including those that change text direction), line separators, lone surrogates. */
const unprintable = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
/** Also matches, first, the sequences of `styleText`; they begin with ESC, and no other control sequence passes. */
const styledOrUnprintable = new RegExp(`${String.fromCharCode(27)}\\[[0-9]{1,2}m|${unprintable.source}`, 'gu');

/**
 * Makes foreign text safe to show to people: interface names, plugin output, annotations. Characters that a terminal
 * would act upon are escaped as in JSON, and text that is too long is cut.
 * @param maxLength in UTF-16 units, before escaping
 */
export function printable(text: string, maxLength = 4_096): string {
  const kept = text.length <= maxLength ? text : `${text.slice(0, maxLength).replace(/[\ud800-\udbff]$/, '')}…`;
  return kept.replaceAll(unprintable, escapeUnits);
}

/** The same for terminal output: our own colours and line ends are kept, and nothing is cut. */
export function printableStyled(text: string): string {
  return text.replaceAll(styledOrUnprintable, (each) => (each === '\n' || each.length > 3 ? each : escapeUnits(each)));
}

function escapeUnits(character: string): string {
  return Array.from({ length: character.length }, (_, index) => {
    return `\\u${character.charCodeAt(index).toString(16).padStart(4, '0')}`;
  }).join('');
}
