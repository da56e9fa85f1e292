import { renderMermaidSVG } from 'beautiful-mermaid';

/** Colours of pictures in light and in dark pages: a picture follows the `color-scheme` of the page that has it. */
export const pictureStyle = `
  svg { --bg: #ffffff; --fg: #24292f; --line: #57606a; --border: #8c959f; --surface: #f6f8fa; --muted: #57606a; }
  @media (prefers-color-scheme: dark) {
    svg { --bg: #1b1b1f; --fg: #e6e6e9; --line: #9a9aa5; --border: #6a6a75; --surface: #25252b; --muted: #b4b4bd; }
  }`;

/** A Mermaid diagram as an SVG picture. @throws Error of the renderer for a diagram that it does not know */
export function drawDiagram(text: string): string {
  return renderMermaidSVG(text, { font: 'sans-serif' })
    .replace(/\s*@import url\([^)]*\);/g, '')
    .replace(/^(<svg[^>]*?) style="[^"]*"/, '$1')
    .replace('<style>', `<style>${pictureStyle}`);
}
