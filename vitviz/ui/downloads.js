// What can be taken home from the distance tab; its numbers are those of the chart that stands above.
const { el, t, memory } = window.vitviz;
const root = element.querySelector('.vv-downloads');
const address = (name, { key, form, rows }) => new URL(`gradio_api/vitviz/${key}/distance/${name}?${new URLSearchParams({ form, rows })}`, document.baseURI).href;
const file = (text, name) => el('a', { class: 'vv-file', text: t(text), download: true, href: '#', 'data-name': name });
const files = [file('Figure (HTML)', 'figure.html'), file('Numbers (.npz)', 'numbers.npz'), file('Numbers (.csv)', 'numbers.csv')];
const picture = el('button', { type: 'button', class: 'vv-file', text: t('Figure (PNG)'), onclick: () => document.querySelector('#vitviz-distance .modebar-btn[data-title*="ownload"]')?.click() });

function show() {
  const value = props.value;
  root.hidden = !value || !value.key;
  if (root.hidden) return;
  for (const one of files) one.href = address(one.dataset.name, value);
  memory.distance = { form: value.form, rows: value.rows };
  root.dataset.survey = value.survey ? value.key : '';
  root.dataset.ready = `${value.key}/form=${value.form}&rows=${value.rows}`;
}

root.removeAttribute('role');
root.replaceChildren(picture, ...files);
watch('value', show);
show();
