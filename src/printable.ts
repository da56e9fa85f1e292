/** Controls, marks without width, among them those that turn the direction of text, line separators, and half characters. */
const unprintable = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]/gu;
/** The same, and before it what `styleText` writes; its first character is ESC, as no other control is let through. */
const styledOrUnprintable = new RegExp(`${String.fromCharCode(27)}\\[[0-9]{1,2}m|${unprintable.source}`, 'gu');

/**
 * Text that others wrote, for people: names of interfaces, what plugins print, annotations. What a terminal would act upon
 * is escaped as in JSON, and what is too long is cut.
 * @param maxLength in UTF-16 units, before escaping
 */
export function printable(text: string, maxLength = 4_096): string {
  const kept = text.length <= maxLength ? text : `${text.slice(0, maxLength).replace(/[\ud800-\udbff]$/, '')}…`;
  return kept.replaceAll(unprintable, escapeUnits);
}

/** The same for what is on its way to a terminal: our own colours and line ends stay, and nothing is cut. */
export function printableStyled(text: string): string {
  return text.replaceAll(styledOrUnprintable, (each) => (each === '\n' || each.length > 3 ? each : escapeUnits(each)));
}

function escapeUnits(character: string): string {
  return Array.from({ length: character.length }, (_, index) => {
    return `\\u${character.charCodeAt(index).toString(16).padStart(4, '0')}`;
  }).join('');
}
