/** Values of a scrape by `name` or `name{labels}`, without the common label with the driver's name. */
export function parseScrape(text: string): Map<string, number> {
  const lines = text.split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => {
      const [, series = '', value] = /^(\S+?(?:\{.*\})?) (\S+)$/.exec(line) ?? [];
      return [series.replace(/,?driver_name="[^"]*",?/, '').replace('{}', ''), Number(value)];
    }),
  );
}
