// A sentence where the action was: what could not be done, why, and what to do. Text only, never HTML.
const { el, t } = window.vitviz;
const root = element.querySelector('.vv-notice');

function show() {
  const text = (props.value && props.value.text) || '';
  root.hidden = !text;
  root.replaceChildren(
    el('span', { class: 'vv-notice-text', text: t(text) }),
    el('button', { type: 'button', 'aria-label': t('Dismiss'), text: '×', onclick: () => { root.hidden = true; } }),
  );
}

watch('value', () => {
  show();
  if (!root.hidden) root.scrollIntoView({ block: 'nearest', behavior: 'smooth' }); // the action may have been a screen away
});
show();
