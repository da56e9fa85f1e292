import DefaultTheme from 'vitepress/theme';
import { h } from 'vue';
import './style.css';
import { VersionMenu } from './version-menu.ts';

export default {
  ...DefaultTheme,
  Layout: () =>
    h(DefaultTheme.Layout, null, {
      'nav-bar-content-after': () => h(VersionMenu),
      'nav-screen-content-after': () => h(VersionMenu),
    }),
};
