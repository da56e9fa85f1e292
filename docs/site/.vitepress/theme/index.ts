import DefaultTheme from 'vitepress/theme';
import { h } from 'vue';
import './style.css';
import { VersionMenu } from './version-menu.ts';

export default {
  ...DefaultTheme,
  Layout: () =>
    h(DefaultTheme.Layout, null, {
      'nav-bar-content-after': () => h(VersionMenu),
      'not-found': () =>
        h('main', { class: 'not-found' }, [
          h('h1', 'There is no such page'),
          h('a', { href: import.meta.env.BASE_URL }, 'To the start page'),
        ]),
      'nav-screen-content-after': () => h(VersionMenu),
    }),
};
