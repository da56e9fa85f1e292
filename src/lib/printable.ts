/** Control and zero-width characters (including those that change text direction), line separators, lone surrogates. */
const unprintable = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
/** Also matches the escape sequences of `styleText`, which come first; no other control sequence passes. */
const styledOrUnprintable = new RegExp(`${String.fromCharCode(27)}\\[[0-9]{1,2}m|${unprintable.source}`, 'gu');

/**
 * Makes foreign text safe to show: interface names, plugin output, annotations. Escapes characters that a terminal would
 * act upon as JSON does, and cuts text that is too long.
 * @param maxLength in UTF-16 units, before escaping
 */
export function printable(text: string, maxLength = 4_096): string {
  const kept = text.length <= maxLength ? text : `${text.slice(0, maxLength).replace(/[\ud800-\udbff]$/, '')}…`;
  return kept.replaceAll(unprintable, escapeUnits);
}

/** Makes terminal output safe: keeps our own colours and line ends, and cuts nothing. */
export function printableStyled(text: string): string {
  return text.replaceAll(styledOrUnprintable, (each) => (each === '\n' || each.length > 3 ? each : escapeUnits(each)));
}

function escapeUnits(character: string): string {
  return Array.from({ length: character.length }, (_, index) => {
    return `\\u${character.charCodeAt(index).toString(16).padStart(4, '0')}`;
  }).join('');
}
