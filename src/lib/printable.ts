/**
 * Characters to escape: control and zero-width characters (including those that change text direction), line separators, lone
 * surrogates.
 */
const unprintable = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
/** Pattern that also matches the escape sequences of `styleText`, which are kept; all other control sequences are escaped. */
const styledOrUnprintable = new RegExp(`${String.fromCharCode(27)}\\[[0-9]{1,2}m|${unprintable.source}`, 'gu');

/**
 * Makes text from outside safe to show: interface names, plugin output, annotations. Escapes characters that a terminal would
 * act upon, as JSON does, and cuts text that is too long.
 * @param maxLength length in UTF-16 units, before escaping
 */
export function printable(text: string, maxLength = 4_096): string {
  const kept = text.length <= maxLength ? text : `${text.slice(0, maxLength).replace(/[\ud800-\udbff]$/, '')}…`;
  return kept.replaceAll(unprintable, escapeUnits);
}

/** Makes terminal output safe. Keeps colours and line ends of the output itself, and cuts nothing. */
export function printableStyled(text: string): string {
  return text.replaceAll(styledOrUnprintable, (each) => (each === '\n' || each.length > 3 ? each : escapeUnits(each)));
}

function escapeUnits(character: string): string {
  return Array.from({ length: character.length }, (_, index) => {
    return `\\u${character.charCodeAt(index).toString(16).padStart(4, '0')}`;
  }).join('');
}
