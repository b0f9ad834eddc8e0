/** What somebody means by a click on a link. */

/** Whether it is to be shown here. With other buttons and keys it goes to another tab, which is the browser's task. */
export function isPlain({ button, ctrlKey, metaKey, shiftKey, altKey }: MouseEvent): boolean {
  return button === 0 && !ctrlKey && !metaKey && !shiftKey && !altKey;
}
