import { defineComponent, h, onMounted, ref } from 'vue';

const base = import.meta.env.BASE_URL;
const version = base.split('/').at(-2) ?? '';
const above = base.slice(0, -version.length - 1);

/** A menu of the versions beside this one, as `versions.json` above their folders lists them. */
export const VersionMenu = defineComponent(() => {
  const versions = ref([version]);
  onMounted(async () => {
    const answer = await fetch(`${above}versions.json`);
    if (answer.ok) versions.value = await answer.json();
  });
  const open = ({ target }: Event) => location.assign(`${above}${(target as HTMLSelectElement).value}/`);
  return () =>
    h(
      'select',
      { class: 'versions', 'aria-label': 'Version', onChange: open },
      versions.value.map((name) =>
        h('option', { value: name, selected: name === version }, name === 'main' ? 'main, not released' : name),
      ),
    );
});
