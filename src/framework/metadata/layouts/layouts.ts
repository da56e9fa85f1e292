import type { Layout, LayoutName } from './layout.ts';
import { attributesJson } from './layout-attributes-json.ts';
import { downwardApi } from './layout-downward-api.ts';
import { kep } from './layout-kep.ts';
import { v1 } from './layout-v1.ts';

export const layouts: Readonly<Record<LayoutName, Layout>> = {
  v1,
  kep,
  'attributes-json': attributesJson,
  'downward-api': downwardApi,
};
