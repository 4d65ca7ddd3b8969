/** Scrolls a box so that an element in it is seen, and nothing around the box. */
export function scrollWithin(box: Element | null | undefined, element: Element | null | undefined) {
  if (!box || !element) return
  const [frame, inner] = [box.getBoundingClientRect(), element.getBoundingClientRect()]
  if (inner.top < frame.top) box.scrollTop += inner.top - frame.top
  else if (inner.bottom > frame.bottom) box.scrollTop += inner.bottom - frame.bottom
}
